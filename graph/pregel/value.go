package pregel

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/graph/message"
	"understudy/internal/jsonplus"
)

// value is what a channel holds or a task writes. It is immutable. It is created from a Go value, JSON, msgpack, items or fields,
// and encoded as JSON or msgpack on first use: most values of a run are never decoded, and a growing list is not encoded again. It
// is safe for concurrent use; two concurrent first uses encode twice.
type value struct {
	kind   valueKind
	goVal  any      // ofGo
	items  []*value // ofList
	fields []field  // ofObject

	json atomic.Pointer[[]byte]
	pack atomic.Pointer[[]byte]
	// typed is the last Go value that was decoded.
	typed atomic.Pointer[typedValue]
	bad   error // why a Go value has no msgpack form
	// info caches the id and type of a stored message.
	info atomic.Pointer[messageInfo]
	// whole marks a list that consists only of messages with ids.
	whole bool
}

// messageInfo identifies a message in a list; ok is false for a value that is not a message.
type messageInfo struct {
	id, typ string
	ok      bool
}

type valueKind uint8

const (
	ofJSON valueKind = iota
	ofPack
	ofGo
	ofList
	ofObject
)

type field struct {
	name string
	v    *value
}

// fieldSet is a list of fields with unique names, in the order of their first set. Setting a field takes constant time.
type fieldSet struct {
	list []field
	at   map[string]int // where names are, in lists of more than a few
}

// fewFields is the size up to which a linear search is faster than a map.
const fewFields = 16

func (s *fieldSet) find(name string) int {
	if len(s.list) <= fewFields {
		for i := range s.list {
			if s.list[i].name == name {
				return i
			}
		}
		return -1
	}
	if s.at == nil {
		s.at = make(map[string]int, 2*len(s.list))
		for i := range s.list {
			s.at[s.list[i].name] = i
		}
	}
	if i, ok := s.at[name]; ok {
		return i
	}
	return -1
}

func (s *fieldSet) set(name string, v *value) {
	if i := s.find(name); i >= 0 {
		s.list[i].v = v
		return
	}
	if s.at != nil {
		s.at[name] = len(s.list)
	}
	s.list = append(s.list, field{name, v})
}

func (s *fieldSet) setRaw(name string, raw []byte) { s.set(name, fromJSON(raw)) }

type typedValue struct {
	t reflect.Type
	v reflect.Value
}

var (
	jsonNull  = []byte("null")
	packNull  = []byte{0xc0}
	null      = &value{kind: ofJSON}
	emptyList = &value{kind: ofList}
)

func init() {
	null.json.Store(&jsonNull)
	null.pack.Store(&packNull)
}

// fromJSON makes a value of valid, compact JSON. Lists and mappings stay plain, even if they look like messages.
func fromJSON(raw []byte) *value {
	if string(raw) == "null" || len(raw) == 0 {
		return null
	}
	v := &value{kind: ofJSON}
	v.json.Store(&raw)
	return v
}

func fromPack(raw []byte) *value {
	if len(raw) == 1 && raw[0] == 0xc0 {
		return null
	}
	v := &value{kind: ofPack}
	v.pack.Store(&raw)
	return v
}

// fromStored decodes a value of a checkpoint.
func fromStored(typ string, data []byte) (*value, error) {
	if typ == jsonplus.TypeNull {
		return null, nil
	}
	packed, err := jsonplus.Pack(typ, data)
	if err != nil {
		return nil, err
	}
	if rest, err := msgp.Skip(packed); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("a value is corrupt")
	}
	return fromPack(packed), nil
}

func fromItems(items []*value) *value { return &value{kind: ofList, items: items} }

func fromFields(fields []field) *value { return &value{kind: ofObject, fields: fields} }

func fromString(s string) *value { return &value{kind: ofGo, goVal: s} }

// fromGo makes a value of a node's result.
func fromGo(x any) *value {
	switch x := x.(type) {
	case nil:
		return null
	case *value:
		return x
	case json.RawMessage:
		if !json.Valid(x) {
			return &value{kind: ofGo, goVal: x, bad: fmt.Errorf("a raw value is not valid JSON")}
		}
		return fromJSON(compact(x))
	case []message.Message:
		items := make([]*value, len(x))
		for i, m := range x {
			items[i] = fromMessage(m)
		}
		return fromItems(items)
	case message.Message:
		return fromMessage(x)
	case *message.Message:
		if x == nil {
			return null
		}
		return fromMessage(*x)
	case Overwrite:
		return &value{kind: ofGo, goVal: Overwrite{fromGo(x.Value)}}
	case *Overwrite:
		return &value{kind: ofGo, goVal: Overwrite{fromGo(x.Value)}}
	case Send:
		return fromSend(x)
	case *Send:
		return fromSend(*x)
	case string, bool, int, int64, float64:
		return &value{kind: ofGo, goVal: x}
	}
	rv := reflect.ValueOf(x)
	if rv.Kind() == reflect.Slice && rv.Type().Elem().Kind() != reflect.Uint8 && !rv.IsNil() && !hasMarshaler(rv.Type()) {
		items := make([]*value, rv.Len())
		for i := range items {
			items[i] = fromGo(rv.Index(i).Interface())
		}
		v := fromItems(items)
		v.typed.Store(&typedValue{rv.Type(), rv})
		return v
	}
	v := &value{kind: ofGo, goVal: x}
	return v
}

func fromSend(s Send) *value {
	return &value{kind: ofGo, goVal: Send{Node: s.Node, Arg: fromGo(s.Arg), Timeout: s.Timeout}}
}

func fromMessage(m message.Message) *value { return &value{kind: ofGo, goVal: m} }

// check encodes a Go value early, so that a value that cannot be stored becomes an error of the node that returned it.
func (v *value) check() error {
	if v.bad != nil {
		return v.bad
	}
	switch v.kind {
	case ofGo:
		switch v.goVal.(type) {
		case string, bool, int, int64, float64:
			return nil
		}
		_, err := v.packed()
		return err
	case ofList:
		for _, item := range v.items {
			if err := item.check(); err != nil {
				return err
			}
		}
	case ofObject:
		for _, f := range v.fields {
			if err := f.v.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// selfEncoded is a Go type of the engine that encodes itself.
type selfEncoded interface {
	appendJSON(b []byte) []byte
	appendPack(b []byte) ([]byte, error)
}

func (v *value) isNull() bool {
	if v == null {
		return true
	}
	if v.kind == ofPack {
		p := *v.pack.Load()
		return len(p) == 1 && p[0] == 0xc0
	}
	return false
}

// JSON returns the value in the form of the API; null for a value that has none.
func (v *value) JSON() []byte {
	if p := v.json.Load(); p != nil {
		return *p
	}
	out := v.appendJSON(make([]byte, 0, v.sizeJSON()))
	v.json.Store(&out)
	return out
}

// sizeJSON returns how long the JSON of a list or an object is, about; 0 for other values.
func (v *value) sizeJSON() int {
	n := 0
	switch v.kind {
	case ofList:
		n = 2
		for _, item := range v.items {
			n += len(item.JSON()) + 1
		}
	case ofObject:
		n = 2
		for _, f := range v.fields {
			n += len(f.name) + 4
			if f.v.kind == ofList {
				n += f.v.sizeJSON()
			} else {
				n += len(f.v.JSON())
			}
		}
	}
	return n
}

func (v *value) appendJSON(b []byte) []byte {
	if p := v.json.Load(); p != nil {
		return append(b, *p...)
	}
	switch v.kind {
	case ofList:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, item.JSON()...)
		}
		return append(b, ']')
	case ofObject:
		return appendFields(b, v.fields)
	case ofGo:
		switch x := v.goVal.(type) {
		case message.Message:
			return x.AppendJSON(b)
		case selfEncoded:
			return x.appendJSON(b)
		case string:
			return appendQuoted(b, x)
		case int:
			return strconv.AppendInt(b, int64(x), 10)
		case int64:
			return strconv.AppendInt(b, x, 10)
		case bool:
			return strconv.AppendBool(b, x)
		case Send:
			b = append(b, `{"node":`...)
			b = append(appendQuoted(b, x.Node), `,"args":`...)
			return append(x.Arg.(*value).appendJSON(b), '}')
		case Overwrite:
			b = append(b, `{"value":`...)
			return append(x.Value.(*value).appendJSON(b), `,"type":"__overwrite__"}`...)
		}
	}
	packed, err := v.packed()
	if err != nil {
		return append(b, "null"...)
	}
	out, err := jsonplus.AppendJSON(b, jsonplus.TypeMsgpack, packed)
	if err != nil {
		return append(b, "null"...)
	}
	return out
}

func appendFields(b []byte, fields []field) []byte {
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, f.name), ':')
		if f.v.kind == ofList { // the conversation of a state, which grows: only its items are kept in this form
			b = f.v.appendJSON(b)
		} else {
			b = append(b, f.v.JSON()...)
		}
	}
	return append(b, '}')
}

// packed returns the value as stored in checkpoints. It returns an error for a Go value that cannot be stored.
func (v *value) packed() ([]byte, error) {
	if p := v.pack.Load(); p != nil {
		return *p, nil
	}
	out, err := v.appendPack(nil)
	if err != nil {
		return nil, err
	}
	v.pack.Store(&out)
	return out, nil
}

func (v *value) appendPack(b []byte) ([]byte, error) {
	if p := v.pack.Load(); p != nil {
		return append(b, *p...), nil
	}
	var err error
	switch v.kind {
	case ofList:
		b = msgp.AppendArrayHeader(b, uint32(len(v.items)))
		for _, item := range v.items {
			p, err := item.packed()
			if err != nil {
				return b, err
			}
			b = append(b, p...)
		}
		return b, nil
	case ofObject:
		b = msgp.AppendMapHeader(b, uint32(len(v.fields)))
		for _, f := range v.fields {
			b = msgp.AppendString(b, f.name)
			if b, err = f.v.appendPack(b); err != nil {
				return b, err
			}
		}
		return b, nil
	case ofGo:
		if v.bad != nil {
			return b, v.bad
		}
		switch x := v.goVal.(type) {
		case message.Message:
			return jsonplus.AppendMessage(b, v.JSON())
		case selfEncoded:
			return x.appendPack(b)
		case Send:
			arg, err := x.Arg.(*value).packed()
			if err != nil {
				return b, err
			}
			return jsonplus.AppendSend(b, x.Node, arg), nil
		case Overwrite:
			to, err := x.Value.(*value).packed()
			if err != nil {
				return b, err
			}
			return jsonplus.AppendOverwrite(b, to), nil
		}
		return appendGo(b, reflect.ValueOf(v.goVal), 0)
	}
	return jsonplus.AppendValue(b, *v.json.Load())
}

// message returns the value as a message, from a Go message or a stored object of a message class; false when it is
// neither.
func (v *value) message() (message.Message, bool) {
	switch v.kind {
	case ofGo:
		m, ok := v.goVal.(message.Message)
		return m, ok
	case ofPack:
		if _, _, ok := v.messageID(); !ok {
			return message.Message{}, false
		}
		if t := v.typed.Load(); t != nil && t.t == messageType {
			return t.v.Interface().(message.Message), true
		}
		m, ok := message.Read(v.JSON())
		if ok {
			v.typed.Store(&typedValue{messageType, reflect.ValueOf(m)})
		}
		return m, ok
	}
	return message.Message{}, false
}

// messageID returns the id of a message without decoding it.
func (v *value) messageID() (id, typ string, ok bool) {
	switch v.kind {
	case ofGo:
		m, ok := v.goVal.(message.Message)
		return m.ID, m.Type, ok
	case ofPack:
		info := v.info.Load()
		if info == nil {
			info = &messageInfo{}
			if p := *v.pack.Load(); !isMap(p[0]) {
				m, ok := jsonplus.ParseMessage(p)
				*info = messageInfo{m.ID, m.Type, ok}
			}
			v.info.Store(info)
		}
		return info.id, info.typ, info.ok
	}
	return "", "", false
}

func isMap(lead byte) bool { return lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf }

func isArray(lead byte) bool { return lead&0xf0 == 0x90 || lead == 0xdc || lead == 0xdd }

// list returns the items of a value that is a list.
func (v *value) list() ([]*value, bool) {
	switch v.kind {
	case ofList:
		return v.items, true
	case ofJSON:
		raw := *v.json.Load()
		if raw[0] != '[' {
			return nil, false
		}
		items := []*value{}
		gjson.ParseBytes(raw).ForEach(func(_, item gjson.Result) bool {
			items = append(items, fromJSON([]byte(item.Raw)))
			return true
		})
		return items, true
	case ofPack:
		raw := *v.pack.Load()
		if !isArray(raw[0]) {
			return nil, false
		}
		parts, err := jsonplus.SplitArray(raw)
		if err != nil {
			return nil, false
		}
		items := make([]*value, len(parts))
		for i, part := range parts {
			items[i] = fromPack(part)
		}
		return items, true
	case ofGo:
		rv := reflect.ValueOf(v.goVal)
		if rv.Kind() == reflect.Slice && rv.IsNil() && rv.Type().Elem().Kind() != reflect.Uint8 {
			return nil, true
		}
	}
	return nil, false
}

// object returns the fields of a value that is a mapping.
func (v *value) object() ([]field, bool) {
	switch v.kind {
	case ofObject:
		return v.fields, true
	case ofPack:
		raw := *v.pack.Load()
		if !isMap(raw[0]) {
			return nil, false
		}
		n, rest, err := msgp.ReadMapHeaderBytes(raw)
		if err != nil {
			return nil, false
		}
		fields := make([]field, 0, min(int(n), len(rest)))
		for range n {
			if len(rest) == 0 || msgp.NextType(rest) != msgp.StrType {
				return nil, false
			}
			var name []byte
			if name, rest, err = msgp.ReadStringZC(rest); err != nil {
				return nil, false
			}
			after, err := msgp.Skip(rest)
			if err != nil {
				return nil, false
			}
			fields = append(fields, field{string(name), fromPack(rest[: len(rest)-len(after) : len(rest)-len(after)])})
			rest = after
		}
		return fields, true
	case ofGo:
		switch x := v.goVal.(type) {
		case message.Message, Send, Overwrite:
			return nil, false
		default:
			rv := reflect.ValueOf(x)
			for rv.Kind() == reflect.Pointer && !rv.IsNil() {
				rv = rv.Elem()
			}
			if (rv.Kind() == reflect.Map || rv.Kind() == reflect.Struct) && !hasMarshaler(rv.Type()) {
				return goFields(rv, false), true
			}
			return nil, false
		}
	case ofJSON:
		raw := *v.json.Load()
		if raw[0] != '{' {
			return nil, false
		}
		var fields fieldSet
		gjson.ParseBytes(raw).ForEach(func(k, item gjson.Result) bool {
			fields.set(k.String(), fromJSON([]byte(item.Raw))) // as json.loads: the last of equal names wins
			return true
		})
		return fields.list, true
	}
	return nil, false
}

func compact(raw []byte) []byte {
	out, err := compactJSON(raw)
	if err != nil {
		return raw
	}
	return out
}

// text returns a value that is text.
func (v *value) text() (string, bool) {
	if v.kind == ofGo {
		s, ok := v.goVal.(string)
		return s, ok
	}
	raw := v.JSON()
	if raw[0] != '"' {
		return "", false
	}
	return gjson.ParseBytes(raw).Str, true
}

// inline returns the value if it is stored in the checkpoint's JSON, as LangGraph does with primitives; else false.
func (v *value) inline() ([]byte, bool) {
	switch v.kind {
	case ofList, ofObject:
		return nil, false
	case ofPack:
		lead := (*v.pack.Load())[0]
		if isMap(lead) || isArray(lead) || lead >= 0xc4 && lead <= 0xc9 || lead >= 0xd4 && lead <= 0xd8 {
			return nil, false
		}
	case ofGo:
		switch v.goVal.(type) {
		case string, bool, int, int64, float64:
		default:
			if p, err := v.packed(); err != nil || isMap(p[0]) || isArray(p[0]) || p[0] >= 0xc4 && p[0] <= 0xc9 || p[0] >= 0xd4 && p[0] <= 0xd8 {
				return nil, false
			}
		}
	}
	raw := v.JSON()
	switch raw[0] {
	case '{', '[':
		return nil, false
	case '"':
		return raw, !strings.Contains(string(raw), `\u0000`) && !(v.kind == ofGo && strings.ContainsRune(v.goString(), 0))
	case 't', 'f':
		return raw, true
	case 'n':
		return raw, v.isNull() // NaN is shown as null, but is not null
	}
	if strings.ContainsAny(string(raw), ".eE") {
		return raw, true
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return raw, true
	}
	_, err := strconv.ParseUint(string(raw), 10, 64)
	return raw, err == nil
}

func (v *value) goString() string {
	s, _ := v.goVal.(string)
	return s
}
