package pregel

import (
	"math/big"
	"slices"
	"strings"

	"understudy/graph/message"
)

// The reducer operator.add by the type of its key. They differ in what a channel holds before the first write.
var (
	addReducer      = &reducer{name: "add", empty: fromGo(0), fold: plus}
	addTextReducer  = &reducer{name: "add", empty: fromString(""), fold: plus}
	addFloatReducer = &reducer{name: "add", empty: fromGo(0.0), fold: plus}
)

// plus is Python's + for stored values: numbers (bools count as 0 and 1), strings and lists.
func plus(current, update *value) (*value, error) {
	if a, ok := current.list(); ok {
		b, ok := update.list()
		if !ok {
			return nil, Errorf("TypeError", `can only concatenate list (not "%s") to list`, pyType(update))
		}
		return fromItems(slices.Concat(a, b)), nil
	}
	if a, ok := current.text(); ok {
		b, ok := update.text()
		if !ok {
			return nil, Errorf("TypeError", `can only concatenate str (not "%s") to str`, pyType(update))
		}
		return fromString(a + b), nil
	}
	a, err := current.plain()
	if err != nil {
		return nil, err
	}
	b, err := update.plain()
	if err != nil {
		return nil, err
	}
	if sum := addNumbers(a, b); sum != nil {
		return sum, nil
	}
	return nil, Errorf("TypeError", "unsupported operand type(s) for +: '%s' and '%s'", pyType(current), pyType(update))
}

// addNumbers adds integers of any size, bools and floats. It returns nil when either operand has another type.
func addNumbers(a, b any) *value {
	x, xok := bigInt(a)
	y, yok := bigInt(b)
	if xok && yok {
		sum := x.Add(x, y)
		if sum.IsInt64() {
			return fromGo(sum.Int64())
		}
		return fromGo(sum)
	}
	f, fok := asFloat(a)
	g, gok := asFloat(b)
	if !fok || !gok {
		return nil
	}
	return fromGo(f + g)
}

func bigInt(x any) (*big.Int, bool) {
	switch x := x.(type) {
	case int64:
		return big.NewInt(x), true
	case bool:
		if x {
			return big.NewInt(1), true
		}
		return big.NewInt(0), true
	case *big.Int:
		return new(big.Int).Set(x), true
	}
	return nil, false
}

func asFloat(x any) (float64, bool) {
	if f, ok := x.(float64); ok {
		return f, true
	}
	n, ok := bigInt(x)
	if !ok {
		return 0, false
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return f, true
}

// messageClasses are Python's names of the classes of messages.
var messageClasses = map[string]string{
	"human": "HumanMessage", "ai": "AIMessage", "system": "SystemMessage", "tool": "ToolMessage", "function": "FunctionMessage",
	"chat": "ChatMessage", message.TypeRemove: "RemoveMessage",
}

// pyType is Python's name of the type of a value.
func pyType(v *value) string {
	if m, ok := v.message(); ok {
		if class, ok := messageClasses[m.Type]; ok {
			return class
		}
		return m.Type
	}
	raw := v.JSON()
	switch raw[0] {
	case '"':
		return "str"
	case '{':
		return "dict"
	case '[':
		return "list"
	case 't', 'f':
		return "bool"
	case 'n':
		return "NoneType"
	}
	if strings.ContainsAny(string(raw), ".eE") {
		return "float"
	}
	return "int"
}
