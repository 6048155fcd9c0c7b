package pregel

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
)

// into decodes the value to a Go variable. Go values of the same type, which nodes returned, are shared and not decoded.
func (v *value) into(dst reflect.Value) error {
	t := dst.Type()
	if v.isNull() {
		if t == rawType {
			dst.Set(reflect.ValueOf(json.RawMessage("null")))
			return nil
		}
		dst.SetZero()
		return nil
	}
	switch t {
	case rawType:
		dst.SetBytes(v.JSON())
		return nil
	case messageType:
		m, err := v.asMessage()
		if err != nil {
			return err
		}
		dst.Set(reflect.ValueOf(m))
		return nil
	}
	if v.kind == ofGo {
		rv := reflect.ValueOf(v.goVal)
		if rv.Type() == t {
			dst.Set(rv)
			return nil
		}
	}
	if known := v.typed.Load(); known != nil && known.t == t {
		dst.Set(known.v)
		return nil
	}
	if err := v.decode(dst); err != nil {
		return err
	}
	if v.kind != ofGo { // decoded once for all readers; shallow copies, as in Python
		v.typed.Store(&typedValue{t, reflect.ValueOf(dst.Interface())})
	}
	return nil
}

func (v *value) decode(dst reflect.Value) error {
	t := dst.Type()
	switch {
	case t == anyType:
		x, err := v.plain()
		if err == nil && x != nil {
			dst.Set(reflect.ValueOf(x))
		}
		return err
	case t.Kind() == reflect.Pointer:
		p := reflect.New(t.Elem())
		if err := v.into(p.Elem()); err != nil {
			return err
		}
		dst.Set(p)
		return nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !hasMarshaler(t):
		items, ok := v.list()
		if !ok {
			return fmt.Errorf("%s is not a list", short(v.JSON()))
		}
		out := reflect.MakeSlice(t, len(items), len(items))
		for i, item := range items {
			if err := item.into(out.Index(i)); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		dst.Set(out)
		return nil
	case t.Kind() == reflect.Struct && !hasMarshaler(t):
		fields, ok := v.object()
		if !ok {
			return fmt.Errorf("%s is not an object", short(v.JSON()))
		}
		known := fieldsOf(t)
		for _, f := range fields {
			for _, k := range known {
				if k.name == f.name {
					if err := f.v.into(dst.FieldByIndex(k.index)); err != nil {
						return &unfit{f.name, f.v, dst.FieldByIndex(k.index).Type(), err}
					}
				}
			}
		}
		return nil
	case t == valuesType:
		fields, ok := v.object()
		if !ok {
			return fmt.Errorf("%s is not an object", short(v.JSON()))
		}
		out := make(map[string]any, len(fields))
		for _, f := range fields {
			x, err := f.v.plain()
			if err != nil {
				return err
			}
			out[f.name] = x
		}
		dst.Set(reflect.ValueOf(out))
		return nil
	case t.Kind() == reflect.Interface:
		return fmt.Errorf("a state cannot be read as %s", t)
	}
	raw := v.JSON()
	switch t.Kind() { // as in Python: 1.0 counts as an integer
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if whole, ok := strings.CutSuffix(string(raw), ".0"); ok {
			raw = []byte(whole)
		}
	}
	err := json.Unmarshal(raw, dst.Addr().Interface())
	var unfit *json.UnmarshalTypeError
	if errors.As(err, &unfit) && unfit.Field == "" {
		return fmt.Errorf("%s is not %s", short(raw), wanted(t.Kind()))
	}
	return err
}

// wanted names the content of a Go kind for readers who do not know Go.
func wanted(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "a bool"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "an integer that fits"
}

// asMessage reads a message, or a value that converts to one.
func (v *value) asMessage() (message.Message, error) {
	if m, ok := v.message(); ok {
		return m, nil
	}
	return message.Parse(v.JSON())
}

// plain returns the value as untyped Go: a message stays a message, an integer is an int64 or, if it does not fit, a *big.Int, a
// float is a float64, a list is []any, or []message.Message if it has only messages, and a mapping is map[string]any.
func (v *value) plain() (any, error) {
	if v.isNull() {
		return nil, nil
	}
	if m, ok := v.message(); ok {
		return m, nil
	}
	if v.kind == ofGo {
		switch x := v.goVal.(type) {
		case string, bool, int64, float64:
			return x, nil
		case int:
			return int64(x), nil
		}
	}
	if items, ok := v.list(); ok {
		out := make([]any, len(items))
		messages := len(items) > 0
		for i, item := range items {
			x, err := item.plain()
			if err != nil {
				return nil, err
			}
			out[i] = x
			if _, ok := x.(message.Message); !ok {
				messages = false
			}
		}
		if messages {
			all := make([]message.Message, len(out))
			for i, x := range out {
				all[i] = x.(message.Message)
			}
			return all, nil
		}
		return out, nil
	}
	if fields, ok := v.object(); ok {
		out := make(map[string]any, len(fields))
		for _, f := range fields {
			x, err := f.v.plain()
			if err != nil {
				return nil, err
			}
			out[f.name] = x
		}
		return out, nil
	}
	return plainJSON(gjson.ParseBytes(v.JSON())), nil
}

func plainJSON(r gjson.Result) any {
	switch {
	case r.Type == gjson.Null:
		return nil
	case r.Type == gjson.String:
		return r.Str
	case r.Type == gjson.True || r.Type == gjson.False:
		return r.Bool()
	case r.Type == gjson.Number:
		if n, err := strconv.ParseInt(r.Raw, 10, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(r.Raw, 10); ok {
			return n
		}
		return r.Num
	case r.IsArray():
		out := []any{}
		r.ForEach(func(_, item gjson.Result) bool {
			out = append(out, plainJSON(item))
			return true
		})
		return out
	}
	out := map[string]any{}
	r.ForEach(func(k, item gjson.Result) bool {
		out[k.String()] = plainJSON(item)
		return true
	})
	return out
}

// short truncates a value for error texts and log lines.
func short(raw []byte) string {
	const most = 120
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}
