"""Training steps as Lightning modules: stage 1 (`disentangle`), stage 2 (`anonymize`) and `prior`."""

from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.disentangle import DisentangleStage
from faceanon.stages.prior import PriorStage

__all__ = ["AnonymizeStage", "DisentangleStage", "PriorStage"]
