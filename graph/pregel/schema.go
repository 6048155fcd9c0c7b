package pregel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Managed values are computed for each task; they are read like keys of the state.
const (
	managedLastStep  = "is_last_step"
	managedRemaining = "remaining_steps"
)

// schema is the part of the state that a node, the input or the output sees.
type schema struct {
	typ  reflect.Type // struct, or map[string]any: all keys that the graph declares
	name string
	keys []schemaKey
}

type schemaKey struct {
	name    string
	index   []int
	typ     reflect.Type
	channel Channel
	managed string
	doc     string
	// required marks the key as required in descriptions. It is not enforced, as in LangGraph.
	required bool
}

func (s *schema) open() bool { return s.typ == valuesType && s.keys == nil }

// schemaOf reads the tags of a struct type. See NewStateGraph.
func schemaOf(t reflect.Type) (*schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &schema{typ: t, name: t.Name()}
	if t == valuesType {
		return s, nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("a state is a struct or pregel.Values, not %s", t)
	}
	var errs []error
	for _, err := range s.collect(t, nil) {
		errs = append(errs, fmt.Errorf("state %s: %w", t, err))
	}
	return s, errors.Join(errs...)
}

// collect adds the fields of a struct, and returns all mistakes.
func (s *schema) collect(t reflect.Type, index []int) (errs []error) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		tag := f.Tag.Get("graph")
		jsonName, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || tag == "" && jsonName == "-" {
			continue
		}
		if f.Anonymous && tag == "" && jsonName == "" && f.Type.Kind() == reflect.Struct {
			errs = append(errs, s.collect(f.Type, at)...)
			continue
		}
		if !f.IsExported() {
			if tag != "" || jsonName != "" {
				errs = append(errs, fmt.Errorf("field %s has the tag of a key, but is not exported: begin its name with a capital", f.Name))
			}
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		if name == "" {
			name = jsonName
		}
		if name == "" || name == "-" {
			name = f.Name
		}
		k := schemaKey{name: name, index: at, typ: f.Type, channel: LastValue(), doc: description(f)}
		for option := range strings.SplitSeq(rest, ",") {
			if err := k.option(option); err != nil {
				errs = append(errs, fmt.Errorf("field %s: %w", f.Name, err))
			}
		}
		if _, untracked := k.channel.(untrackedSpec); !untracked && k.managed == "" {
			if part := unstorable(f.Type, 0); part != nil {
				errs = append(errs, fmt.Errorf("field %s: a %s cannot be part of the state: keep it outside, or mark the field untracked", f.Name, part))
			}
		}
		if slices.ContainsFunc(s.keys, func(o schemaKey) bool { return o.name == name }) {
			errs = append(errs, fmt.Errorf("field %s: key %q is taken", f.Name, name))
			continue
		}
		s.keys = append(s.keys, k)
	}
	return errs
}

// unstorable returns the part of a type that has no form in a checkpoint; nil if there is none.
func unstorable(t reflect.Type, depth int) reflect.Type {
	if t.PkgPath() != "" && hasMarshaler(t) || depth > 8 { // types may contain themselves
		return nil
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return t
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return unstorable(t.Elem(), depth+1)
	default:
		return nil
	}
}

func description(f reflect.StructField) string {
	text, _ := tagOf(f, "description")
	return text
}

func (k *schemaKey) option(option string) error {
	key, arg, _ := strings.Cut(option, "=")
	switch key {
	case "":
	case "reducer":
		switch arg {
		case "add_messages":
			if t := k.typ; t.Kind() == reflect.Slice && slices.Contains([]reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Float64}, t.Elem().Kind()) ||
				t.Kind() != reflect.Slice && t.Kind() != reflect.Interface && t != rawType {
				return fmt.Errorf("reducer add_messages is for []message.Message, not %s", t)
			}
			k.channel = Messages()
		case "append":
			if k.typ.Kind() != reflect.Slice && k.typ.Kind() != reflect.Interface {
				return fmt.Errorf("reducer append is for lists, not %s", k.typ)
			}
			k.channel = Append()
		case "add":
			switch k.typ.Kind() {
			case reflect.Slice:
				k.channel = Append()
			case reflect.String:
				k.channel = reducerSpec{addTextReducer}
			case reflect.Float32, reflect.Float64:
				k.channel = reducerSpec{addFloatReducer}
			default:
				k.channel = Add()
			}
		default:
			return fmt.Errorf("unknown reducer %q: there are add_messages, append and add; WithChannel takes any other", arg)
		}
	case "last":
	case "required":
		k.required = true
	case "ephemeral":
		k.channel = ephemeralSpec{unguarded: arg == "any"}
	case "untracked":
		k.channel = untrackedSpec{unguarded: arg == "any"}
	case "topic":
		k.channel = topicSpec{accumulate: arg == "accumulate"}
	case "managed":
		if arg != managedLastStep && arg != managedRemaining {
			return fmt.Errorf("unknown managed value %q: there are %s and %s", arg, managedLastStep, managedRemaining)
		}
		k.managed = arg
	default:
		return fmt.Errorf("unknown option %q", option)
	}
	return nil
}

// decodeTo reads a value into a Go variable.
func decodeTo[T any](v *value, dst *T) error {
	if v == nil {
		return nil
	}
	return v.into(reflect.ValueOf(dst).Elem())
}

// emptyOf returns the value of a channel with a reducer before the first update: the zero value of its type if LangGraph can construct
// one, else nil.
func emptyOf(zero any) *value {
	if zero == nil {
		return nil
	}
	switch t := reflect.TypeOf(zero); t.Kind() {
	case reflect.Slice:
		if t == rawType {
			return nil
		}
		return emptyList
	case reflect.Map:
		return fromFields(nil)
	case reflect.Pointer, reflect.Interface, reflect.Struct:
		return nil
	}
	return fromGo(zero)
}
