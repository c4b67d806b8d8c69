"""The only Lightning modules."""

from faceanon.stages.anonymize import AnonymizeStage
from faceanon.stages.critic import CriticStage
from faceanon.stages.disentangle import DisentangleStage
from faceanon.stages.prior import PriorStage

__all__ = ["AnonymizeStage", "CriticStage", "DisentangleStage", "PriorStage"]
