"""JSON of the notes: one flat object. The module ``json`` costs 14 ms to load, and is not in minimal Pythons."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"true": True, "false": False, "null": None}
_DIGITS = frozenset("0123456789")
_NUMBER = frozenset("0123456789.eE+-")
_HEX = frozenset("0123456789abcdefABCDEF")


def render(fields):
    """One JSON object in ASCII with a newline at its end, from (name, value) pairs.

    Values are text, whole numbers, floats, booleans, ``None`` and lists of them.
    """
    inner = ", ".join("%s: %s" % (_value(name), _value(value)) for name, value in fields)
    return ("{%s}\n" % inner).encode("ascii")


def _value(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return '"%s"' % "".join(_character(c) for c in value)
    if isinstance(value, list):
        return "[%s]" % ", ".join(_value(v) for v in value)
    return repr(value)


def _character(character):
    escape = _ESCAPES.get(character)
    if escape:
        return escape
    code = ord(character)
    if 32 <= code < 127:
        return character
    if code < 0x10000:
        return "\\u%04x" % code
    code -= 0x10000
    return "\\u%04x\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))


def read(content):
    """The fields of one flat JSON object: text, whole numbers, fractions, booleans and nulls.

    :raises ValueError: ``content`` (bytes) is anything else; something nested, or torn, for one.
    """
    text = content.decode("utf-8")
    fields = {}
    at = _skip(text, _expect(text, _skip(text, 0), "{"))
    if text[at : at + 1] == "}":
        return _end(text, at + 1, fields)
    while True:
        name, at = _string(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if text[at : at + 1] == '"':
            fields[name], at = _string(text, at)
        else:
            fields[name], at = _bare(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return _end(text, at + 1, fields)
        at = _skip(text, _expect(text, at, ","))


def _end(text, at, fields):
    if _skip(text, at) != len(text):
        raise ValueError("something follows the object")
    return fields


def _skip(text, at):
    while text[at : at + 1] in (" ", "\n", "\r", "\t"):
        at += 1
    return at


def _expect(text, at, character):
    if text[at : at + 1] != character:
        raise ValueError("no %s at character %d" % (character, at))
    return at + 1


def _string(text, at):
    at = _expect(text, at, '"')
    parts = []
    while True:
        character = text[at : at + 1]
        at += 1
        if character == '"':
            return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace"), at
        if not character or character < " ":
            raise ValueError("a text does not end")
        if character == "\\":
            escape = text[at : at + 1]
            at += 1
            if escape == "u":
                digits = text[at : at + 4]
                if len(digits) != 4 or not _HEX.issuperset(digits):
                    raise ValueError("a broken escape")
                parts.append(chr(int(digits, 16)))
                at += 4
                continue
            if escape not in _UNESCAPES:
                raise ValueError("a broken escape")
            character = _UNESCAPES[escape]
        parts.append(character)


def _bare(text, at):
    end = at
    while text[end : end + 1] not in ("", ",", "}", " ", "\n", "\r", "\t"):
        end += 1
    word = text[at:end]
    if word in _WORDS:
        return _WORDS[word], end
    digits = word[1:] if word.startswith("-") else word
    if digits and _DIGITS.issuperset(digits) and len(digits) <= 20:
        return int(word), end
    if digits[:1] and digits[0] in _DIGITS and _NUMBER.issuperset(digits):
        return float(word), end
    raise ValueError("%.20r is no value" % word)
