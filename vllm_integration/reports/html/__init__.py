"""``--report DIR``: a judgement or a comparison as one self-contained HTML page."""
