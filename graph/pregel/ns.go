package pregel

import (
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonplus"
)

// withoutTaskIDs returns a namespace without task ids and call counters.
func withoutTaskIDs(ns string) string {
	parts := strings.Split(ns, "|")
	parts = slices.DeleteFunc(parts, isNumber)
	return withoutIDs(strings.Join(parts, "|"))
}

// withoutIDs returns a namespace without task ids.
func withoutIDs(ns string) string {
	parts := strings.Split(ns, "|")
	for i, p := range parts {
		parts[i], _, _ = strings.Cut(p, ":")
	}
	return strings.Join(parts, "|")
}

// parentNS returns the namespace of the graph above the one that a task runs in.
func parentNS(ns string) string {
	parts := strings.Split(ns, "|")
	drop := func() {
		for len(parts) > 0 && isNumber(parts[len(parts)-1]) {
			parts = parts[:len(parts)-1]
		}
	}
	drop()
	if len(parts) > 0 {
		parts = parts[:len(parts)-1]
	}
	drop()
	return strings.Join(parts, "|")
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// appendJSON and appendPack encode an interrupt.
func (i interrupt) appendJSON(b []byte) []byte {
	b = append(b, `{"value":`...)
	b = append(b, i.value.JSON()...)
	b = append(b, `,"id":"`...)
	b = append(append(b, i.id...), `","response_schema":`...)
	if i.schema == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, i.schema.JSON()...)
	}
	return append(b, '}')
}

func (i interrupt) appendPack(b []byte) ([]byte, error) {
	v, err := i.value.packed()
	if err != nil {
		return b, err
	}
	var schema []byte
	if i.schema != nil {
		if schema, err = i.schema.packed(); err != nil {
			return b, err
		}
	}
	return jsonplus.AppendInterrupt(b, v, i.id, schema), nil
}

// splitSend reads the msgpack of a Send.
func splitSend(b []byte) (node string, arg []byte, ok bool) {
	var payload []byte
	switch lead := b[0]; {
	case lead >= 0xd4 && lead <= 0xd8:
		payload = b[2:]
	case lead == 0xc7 && len(b) > 3:
		payload = b[3:]
	case lead == 0xc8 && len(b) > 4:
		payload = b[4:]
	case lead == 0xc9 && len(b) > 6:
		payload = b[6:]
	default:
		return "", nil, false
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(payload)
	if err != nil || n < 3 {
		return "", nil, false
	}
	var module, name []byte
	if module, rest, err = msgp.ReadStringZC(rest); err != nil {
		return "", nil, false
	}
	if name, rest, err = msgp.ReadStringZC(rest); err != nil {
		return "", nil, false
	}
	if string(module) != "langgraph.types" || string(name) != "Send" {
		return "", nil, false
	}
	if n, rest, err = msgp.ReadArrayHeaderBytes(rest); err != nil || n < 2 {
		return "", nil, false
	}
	if node, rest, err = msgp.ReadStringBytes(rest); err != nil {
		return "", nil, false
	}
	after, err := msgp.Skip(rest)
	if err != nil {
		return "", nil, false
	}
	return node, rest[: len(rest)-len(after) : len(rest)-len(after)], true
}
