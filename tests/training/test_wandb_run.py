"""The option that logs a run to W&B beside its files."""

import pytest
from jsonargparse import Namespace

from faceanon.errors import UserError
from faceanon.training.wandb_run import CLASS, add_wandb

CSV = Namespace(class_path="lightning.pytorch.loggers.CSVLogger", init_args=Namespace(save_dir="runs"))


def config(logger, **settings):
    trainer = Namespace(logger=logger, default_root_dir="runs")
    return Namespace(**{"wandb": "faceanon", "name": "dbaf_s1", "trainer": trainer, **settings})


@pytest.mark.parametrize(("logger", "kept"), [(CSV, [CSV]), ([CSV, CSV], [CSV, CSV]), (None, []), (False, [])])
def test_the_loggers_of_the_run_stay_in_front(logger, kept):
    given = config(logger)
    add_wandb(given, "fit")
    *before, added = given["trainer"]["logger"]
    assert before == kept
    assert added.class_path == CLASS
    assert vars(added.init_args) == {"project": "faceanon", "save_dir": "runs", "name": "dbaf_s1", "job_type": "fit"}


def test_a_saved_configuration_does_not_add_it_twice():
    given = config(CSV)
    add_wandb(given, "test")
    add_wandb(given, "test")
    assert len(given["trainer"]["logger"]) == 2


def test_without_the_option_nothing_changes():
    given = config(CSV, wandb=None)
    add_wandb(given, "fit")
    assert given["trainer"]["logger"] is CSV


def test_a_project_without_a_name_is_refused():
    with pytest.raises(UserError, match="--wandb: give the name of a project"):
        add_wandb(config(CSV, wandb=" "), "fit")
