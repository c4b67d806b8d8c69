"""The mark: XMP that says, in a term of the IPTC, that trained algorithms made a part of what a file shows.

It is the same in every file, so it tells nothing of the person. The IPTC's list of terms calls it "Edited using
Generative AI".
"""

from __future__ import annotations

from PIL import Image

NAMESPACE = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"
# Attributes of an rdf:Description.
MARK = f' xmlns:Iptc4xmpExt="{NAMESPACE}" Iptc4xmpExt:DigitalSourceType="{SOURCE_TYPE}"'

_PACKET = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about=""{attributes}>{elements}</rdf:Description>'
    '</rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
)


def packet(attributes: str = MARK, elements: str = "") -> bytes:
    """An XMP packet; the mark alone, if nothing else is given.

    Args:
        attributes: XML, each with a space before it.
        elements: XML.

    Examples:
        >>> from faceanon.photo.mark import packet
        >>> b"compositeWithTrainedAlgorithmicMedia" in packet()
        True
    """
    return _PACKET.format(attributes=attributes, elements=elements).encode()


def xmp_of(image: Image.Image) -> bytes:
    """The XMP packet of an opened picture; empty where there is none."""
    xmp = image.info.get("xmp")
    # Pillow's readers differ by format: some give text, some bytes.
    if isinstance(xmp, str):
        return xmp.encode("utf-8", "replace")
    return xmp if isinstance(xmp, bytes) else b""


def is_marked(image: Image.Image) -> bool:
    """Whether an opened picture carries the mark."""
    return SOURCE_TYPE.encode() in xmp_of(image)
