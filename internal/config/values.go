package config

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// textOrFile reads a text, or {"file": name}.
func (f *file) textOrFile(v value, key string) (text string) {
	if _, isObject := v.data.([]member); !isObject {
		return f.text(v, key, "You are a helpful assistant.")
	}
	f.section(v, key, map[string]func(value, string){"file": func(v value, key string) {
		name := f.text(v, key, "prompt.md")
		if name == "" {
			return
		}
		raw, err := f.read(f.abs(name))
		if errors.Is(err, fs.ErrNotExist) {
			f.wrong(v, key, "there is no file %s; create it, or write the text here", f.abs(name))
		} else if err != nil {
			f.wrong(v, key, "cannot be read: %v; name a file of text", err)
		}
		text = strings.TrimSpace(string(raw))
	}})
	return text
}

// filled reads text and replaces variables in it.
func (f *file) filled(v value, key, example string) string {
	text, _ := f.fill(f.text(v, key, example), v, key)
	return text
}

func (f *file) setFilled(to *string, example string) func(value, string) {
	return func(v value, key string) { *to = f.filled(v, key, example) }
}

// setFilledMap reads an object of texts with variables.
func (f *file) setFilledMap(to *map[string]string, example string) func(value, string) {
	return func(v value, key string) {
		members, ok := v.data.([]member)
		if !ok {
			f.wrong(v, key, "is %s; write an object: %s", v.kind(), example)
			return
		}
		*to = make(map[string]string, len(members))
		for _, m := range members {
			(*to)[m.key] = f.filled(m.value, join(key, m.key), "text")
		}
	}
}

// headers reads headers of the requests to a model.
func (f *file) headers(to *map[string]string, v value, key string) {
	f.setFilledMap(to, `{"x-team": "search"}`)(v, key)
	members, _ := v.data.([]member)
	for _, m := range members {
		at := join(key, m.key)
		if !headerName.MatchString(m.key) {
			f.wrong(m.value, at, "%q is not the name of a header", m.key)
		}
		(*to)[m.key] = f.headerText((*to)[m.key], m.value, at)
	}
}

// headerText returns the value of a header without the white space around it, which mounted secrets have at their end.
func (f *file) headerText(text string, v value, key string) string {
	text = strings.TrimSpace(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		f.wrong(v, key, "has a line break or another control character, which no header can have")
	}
	return text
}

func (f *file) setDuration(to *time.Duration, most time.Duration) func(value, string) {
	return func(v value, key string) {
		text, _ := v.data.(string)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > most {
			f.wrong(v, key, `write a time of at most %s, such as "30s"`, most)
			return
		}
		*to = d
	}
}

func (f *file) setInt(to *int, least, most int64) func(value, string) {
	return func(v value, key string) { *to = int(f.integer(v, key, least, most)) }
}

func (f *file) number(v value, key string, least, most float64) float64 {
	n, _ := v.data.(json.Number)
	x, err := n.Float64()
	if err != nil || x < least || x > most {
		f.wrong(v, key, "write a number from %v to %v", least, most)
	}
	return x
}

func (f *file) rawMembers(v value, key string) map[string]json.RawMessage {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"top_k": 3}`, v.kind())
		return nil
	}
	out := make(map[string]json.RawMessage, len(members))
	for _, m := range members {
		out[m.key] = m.value.append(nil)
	}
	return out
}

func (f *file) filledList(v value, key string) []string {
	items, ok := v.data.([]value)
	if !ok {
		f.wrong(v, key, `is %s; write a list, such as ["--local-timezone", "UTC"]`, v.kind())
		return nil
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		out = append(out, f.filled(item, key+"["+strconv.Itoa(i)+"]", "text"))
	}
	return out
}
