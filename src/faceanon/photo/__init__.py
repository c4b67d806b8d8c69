"""Photographs: faces found (`detect`), decided on (`policy`), cut out (`align`), pasted (`paste`), written (`file`)."""
