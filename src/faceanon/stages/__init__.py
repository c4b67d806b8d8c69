"""Training steps as Lightning modules: stage 1 (`disentangle`), stage 2 (`anonymize`), `prior` and `auxiliary`."""

from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.auxiliary import AuxiliaryStage
from faceanon.stages.disentangle import DisentangleStage
from faceanon.stages.prior import PriorStage

__all__ = ["AnonymizeStage", "AuxiliaryStage", "DisentangleStage", "PriorStage"]
