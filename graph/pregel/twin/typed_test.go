package twin

import (
	"encoding/json"
	"reflect"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// typedState is the state of graphs that are typed: typedChannels in Python.
type typedState struct {
	N        *int64            `json:"n"`
	Items    []json.RawMessage `json:"items" graph:"items,reducer=append"`
	Total    int64             `json:"total" graph:"total,reducer=add"`
	Answer   json.RawMessage   `json:"answer"`
	Topics   json.RawMessage   `json:"topics"`
	Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
	Topic    json.RawMessage   `json:"topic"`
	Seen     []json.RawMessage `json:"seen" graph:"seen,topic=accumulate"`
	Brief    json.RawMessage   `json:"brief" graph:"brief,ephemeral"`
	Text     string            `json:"text" graph:"text,reducer=add"`
	Score    float64           `json:"score" graph:"score,reducer=add"`
	Left     int               `json:"left" graph:"left,managed=remaining_steps"`
}

var typedChannels = channels{
	{"n", "last"},
	{"items", "append"},
	{"total", "add"},
	{"answer", "last"},
	{"topics", "last"},
	{"messages", "messages"},
	{"topic", "last"},
	{"seen", "topic_all"},
	{"brief", "ephemeral"},
	{"text", "text"},
	{"score", "float"},
	{"left", "remaining_steps"},
}

// looseUpdate is an update as a struct: keys that may not be part of the state among them.
type looseUpdate struct {
	N      json.RawMessage `json:"n"`
	Items  json.RawMessage `json:"items"`
	Total  json.RawMessage `json:"total"`
	Answer json.RawMessage `json:"answer"`
	Topics json.RawMessage `json:"topics"`
	Text   json.RawMessage `json:"text"`
	Score  json.RawMessage `json:"score"`
	Extra  json.RawMessage `json:"extra"`
}

// valuesOf is a state as the interpreter reads it: a typed one without what is not there.
func valuesOf(state any) pregel.Values {
	if values, ok := state.(pregel.Values); ok {
		return values
	}
	values := pregel.Values{}
	rv := reflect.ValueOf(state)
	for i := range rv.NumField() {
		v := rv.Field(i).Interface()
		switch x := v.(type) {
		case json.RawMessage:
			if x == nil {
				continue
			}
		case *int64:
			if x == nil {
				continue
			}
			v = raw(*x)
		default:
			v = raw(x)
		}
		values[rv.Type().Field(i).Tag.Get("json")] = v
	}
	return values
}

// returned is an update in the form in which a node returns it. An update that the form cannot hold is returned as values.
func returned(form string, update []pregel.Write) any {
	values := pregel.Values{}
	for _, w := range update {
		values[w.Channel] = w.Value
	}
	if form == "values" {
		return values
	}
	if form == "" {
		return update
	}
	for _, v := range values {
		switch v.(type) {
		case pregel.Overwrite, []message.Message:
			if form == "raw" {
				return update
			}
			return values
		}
	}
	if form == "raw" {
		doc := []byte{'{'}
		for i, w := range update {
			if i > 0 {
				doc = append(doc, ',')
			}
			doc = append(append(append(doc, raw(w.Channel)...), ':'), raw(w.Value)...)
		}
		return json.RawMessage(append(doc, '}'))
	}
	var out looseUpdate
	if json.Unmarshal(raw(values), &out) != nil || len(known(out)) != len(values) {
		return values
	}
	return out
}

// known are the fields of an update that are set.
func known(u looseUpdate) map[string]any {
	out := map[string]any{}
	rv := reflect.ValueOf(u)
	for i := range rv.NumField() {
		if x := rv.Field(i).Interface().(json.RawMessage); x != nil {
			out[rv.Type().Field(i).Tag.Get("json")] = x
		}
	}
	return out
}
