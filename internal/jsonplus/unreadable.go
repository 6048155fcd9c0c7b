package jsonplus

import "fmt"

// Unreadable names what a msgpack value is that AppendJSON has no sense for, by what it says of itself: an extension of an unknown
// code, an object whose content is corrupt, or corrupt bytes. "": the value can be read. What is nested in it is not looked at,
// but must be whole.
func Unreadable(data []byte) string {
	if len(data) == 0 {
		return corruptMsgpack
	}
	if c := data[0]; !(c >= 0xc7 && c <= 0xc9) && !(c >= 0xd4 && c <= 0xd8) {
		if _, err := AppendJSON(nil, TypeMsgpack, data); err != nil {
			return corruptMsgpack
		}
		return ""
	}
	code, payload, rest, ok := readExt(data)
	if !ok || len(rest) > 0 {
		return corruptMsgpack
	}
	if code < extSingleArg || code > extDelta {
		return fmt.Sprintf("msgpack extension %d", code)
	}
	if _, err := appendExt(nil, code, payload, 1); err == nil {
		return ""
	}
	if c, err := readCall(payload); err == nil && code <= extPydanticV2 && printable(c.module) && printable(c.name) {
		return fmt.Sprintf("%s.%s, corrupt", c.module, c.name)
	}
	return corruptMsgpack
}

const corruptMsgpack = "msgpack, corrupt"

// printable reports whether a name is one that may be shown.
func printable(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(name) > 0 && len(name) < 128
}
