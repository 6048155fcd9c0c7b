package pregel

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"understudy/graph/message"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

var (
	messageType       = reflect.TypeFor[message.Message]()
	messagesType      = reflect.TypeFor[[]message.Message]()
	rawType           = reflect.TypeFor[json.RawMessage]()
	numberType        = reflect.TypeFor[json.Number]()
	anyType           = reflect.TypeFor[any]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	valuesType        = reflect.TypeFor[map[string]any]()
)

var errDepth = errors.New("a value is nested too deeply, or holds itself")

// deepest is the maximum nesting of Go values. It is also the limit of JsonPlusSerializer, which writes what Python twins
// read.
const deepest = 512

// structField is a field of a struct as encoding/json names it.
type structField struct {
	name      string
	index     []int
	omitEmpty bool
	omitZero  bool
	asString  bool
}

var structFields sync.Map // reflect.Type -> []structField

// fieldsOf returns the fields of a struct type, those of embedded structs included, as encoding/json sees them.
func fieldsOf(t reflect.Type) []structField {
	if known, ok := structFields.Load(t); ok {
		return known.([]structField)
	}
	var out []structField
	collectFields(t, nil, &out)
	structFields.Store(t, out)
	return out
}

func collectFields(t reflect.Type, index []int, out *[]structField) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		graphName, _, _ := strings.Cut(f.Tag.Get("graph"), ",")
		if f.Tag.Get("json") == "-" && graphName == "" {
			continue
		}
		if f.Anonymous && name == "" && graphName == "" {
			inner := f.Type
			if inner.Kind() == reflect.Struct {
				collectFields(inner, at, out)
				continue
			}
		}
		if !f.IsExported() {
			continue
		}
		if graphName != "" {
			name = graphName
		}
		if name == "" || name == "-" {
			name = f.Name
		}
		*out = append(*out, structField{
			name: name, index: at, omitEmpty: strings.Contains(options, "omitempty"), omitZero: strings.Contains(options, "omitzero"),
			asString: slices.Contains(strings.Split(options, ","), "string"),
		})
	}
}

func hasMarshaler(t reflect.Type) bool {
	return t.Implements(marshalerType) || t.Implements(textMarshalerType) ||
		reflect.PointerTo(t).Implements(marshalerType) || reflect.PointerTo(t).Implements(textMarshalerType)
}

// goFields returns the entries of a map or struct, in the order of keys or fields. set: only fields of a struct that are set.
func goFields(rv reflect.Value, set bool) []field {
	if rv.Kind() == reflect.Map {
		fields := make([]field, 0, rv.Len())
		for iter := rv.MapRange(); iter.Next(); {
			fields = append(fields, field{mapKey(iter.Key()), fromGo(iter.Value().Interface())})
		}
		slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
		return fields
	}
	known := fieldsOf(rv.Type())
	fields := make([]field, 0, len(known))
	for _, f := range known {
		fv := rv.FieldByIndex(f.index)
		if (set || f.omitZero) && fv.IsZero() || f.omitEmpty && isEmpty(fv) {
			continue
		}
		fields = append(fields, field{f.name, fromGo(fv.Interface())})
	}
	return fields
}

func mapKey(k reflect.Value) string {
	if k.Kind() == reflect.String {
		return k.String()
	}
	if m, ok := k.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	switch k.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(k.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(k.Uint(), 10)
	}
	return fmt.Sprint(k.Interface())
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// appendGo appends a Go value as msgpack, in the form that JsonPlusSerializer writes for its Python counterpart. It follows
// encoding/json, except that messages are objects of their classes, bytes stay bytes and floats stay floats.
func appendGo(b []byte, rv reflect.Value, depth int) ([]byte, error) {
	if depth > deepest {
		return b, errDepth
	}
	if !rv.IsValid() {
		return msgp.AppendNil(b), nil
	}
	t := rv.Type()
	switch t {
	case messageType:
		return jsonplus.AppendMessage(b, rv.Interface().(message.Message).AppendJSON(nil))
	case rawType:
		if rv.Len() == 0 {
			return msgp.AppendNil(b), nil
		}
		return jsonplus.AppendValue(b, rv.Bytes())
	case numberType:
		if rv.String() == "" {
			return msgp.AppendInt(b, 0), nil
		}
		return jsonplus.AppendValue(b, []byte(rv.String()))
	}
	if v, ok := rv.Interface().(*value); ok {
		if v == nil {
			return msgp.AppendNil(b), nil
		}
		return v.appendPack(b)
	}
	switch x := rv.Interface().(type) {
	case Send:
		return fromSend(x).appendPack(b)
	case Overwrite:
		return fromGo(x).appendPack(b)
	}
	switch rv.Kind() {
	case reflect.Pointer, reflect.Interface:
		if rv.IsNil() {
			return msgp.AppendNil(b), nil
		}
		if t.Implements(marshalerType) && t.Elem() != messageType {
			return appendMarshaled(b, rv)
		}
		return appendGo(b, rv.Elem(), depth+1)
	}
	if t.PkgPath() != "" && hasMarshaler(t) {
		return appendMarshaled(b, rv)
	}
	var err error
	switch rv.Kind() {
	case reflect.String:
		return msgp.AppendString(b, strings.ToValidUTF8(rv.String(), "\ufffd")), nil
	case reflect.Bool:
		return msgp.AppendBool(b, rv.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if rv.Int() >= 0 { // as ormsgpack, which writes positive numbers as unsigned
			return msgp.AppendUint64(b, uint64(rv.Int())), nil
		}
		return msgp.AppendInt64(b, rv.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return msgp.AppendUint64(b, rv.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return msgp.AppendFloat64(b, rv.Float()), nil
	case reflect.Slice:
		if rv.IsNil() {
			return msgp.AppendArrayHeader(b, 0), nil
		}
		if t.Elem().Kind() == reflect.Uint8 {
			return msgp.AppendBytes(b, rv.Bytes()), nil
		}
		fallthrough
	case reflect.Array:
		b = msgp.AppendArrayHeader(b, uint32(rv.Len()))
		for i := range rv.Len() {
			if b, err = appendGo(b, rv.Index(i), depth+1); err != nil {
				return b, err
			}
		}
		return b, nil
	case reflect.Map:
		keys := rv.MapKeys()
		names := make(map[string]reflect.Value, len(keys))
		order := make([]string, len(keys))
		for i, k := range keys {
			order[i] = mapKey(k)
			names[order[i]] = rv.MapIndex(k)
		}
		slices.Sort(order)
		b = msgp.AppendMapHeader(b, uint32(len(order)))
		for _, name := range order {
			b = msgp.AppendString(b, name)
			if b, err = appendGo(b, names[name], depth+1); err != nil {
				return b, err
			}
		}
		return b, nil
	case reflect.Struct:
		fields := fieldsOf(t)
		n, values := 0, make([]reflect.Value, len(fields))
		for i, f := range fields {
			fv := rv.FieldByIndex(f.index)
			if f.omitZero && fv.IsZero() || f.omitEmpty && isEmpty(fv) {
				continue
			}
			values[i] = fv
			n++
		}
		b = msgp.AppendMapHeader(b, uint32(n))
		for i, f := range fields {
			if !values[i].IsValid() {
				continue
			}
			b = msgp.AppendString(b, f.name)
			if f.asString {
				b = msgp.AppendString(b, fmt.Sprint(values[i].Interface()))
				continue
			}
			if b, err = appendGo(b, values[i], depth+1); err != nil {
				return b, err
			}
		}
		return b, nil
	}
	return b, fmt.Errorf("a %s cannot be part of the state", t)
}

func appendMarshaled(b []byte, rv reflect.Value) ([]byte, error) {
	raw, err := json.Marshal(rv.Interface())
	if err != nil {
		return b, err
	}
	return jsonplus.AppendValue(b, raw)
}

func compactJSON(raw []byte) ([]byte, error) {
	if !bytes.ContainsAny(raw, " \n\r\t") {
		return raw, nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// appendQuoted appends a JSON string. NUL characters are dropped, as in LangGraph Server, because Postgres cannot store
// them.
func appendQuoted(b []byte, s string) []byte {
	return jsonobj.AppendText(b, strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd"))
}
