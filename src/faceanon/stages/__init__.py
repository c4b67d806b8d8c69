"""The only Lightning modules."""

from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.auxiliary import AuxiliaryStage
from faceanon.stages.disentangle import DisentangleStage
from faceanon.stages.prior import PriorStage

__all__ = ["AnonymizeStage", "AuxiliaryStage", "DisentangleStage", "PriorStage"]
