package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"understudy/internal/typo"
)

// reader walks a parsed file and collects what is wrong with it instead of stopping at the first thing.
type reader struct {
	file     string // base name, for messages
	src      []byte
	mistakes Mistakes
	warnings []Warning
}

func (r *reader) wrong(v value, key, format string, args ...any) {
	m := at(r.src, v.at, key+": "+fmt.Sprintf(format, args...))
	m.File = r.file
	r.mistakes = append(r.mistakes, *m)
}

// missing reports that a key is missing, unless a mistake at it is reported: it is there, and cannot be read.
func (r *reader) missing(v value, key, format string, args ...any) {
	if !r.mistaken(key) {
		r.wrong(v, key, "is missing; "+format, args...)
	}
}

// mistaken reports whether there is a mistake at a key, or below it.
func (r *reader) mistaken(key string) bool {
	return slices.ContainsFunc(r.mistakes, func(m Mistake) bool {
		rest, found := strings.CutPrefix(m.Text, key)
		return found && rest != "" && strings.Contains(".[:", rest[:1])
	})
}

func (r *reader) warn(key, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{Key: key, Text: fmt.Sprintf(format, args...)})
}

// section reads an object by a function per key. null counts as absent. Unknown keys are warned of.
func (r *reader) section(v value, key string, fields map[string]func(value, string)) {
	if v.data == nil {
		return
	}
	members, ok := v.data.([]member)
	if !ok {
		r.wrong(v, or(key, r.file), "is %s; write an object: {…}", v.kind())
		return
	}
	for _, m := range members {
		path := join(key, m.key)
		read, known := fields[m.key]
		if !known {
			r.warn(path, "unknown key, ignored%s", or(suggestion(m.key, fields), choices(fields)))
			continue
		}
		if m.data != nil {
			read(m.value, path)
		}
	}
}

func (r *reader) text(v value, key, example string) string {
	s, ok := v.data.(string)
	if !ok {
		r.wrong(v, key, "is %s; write text, such as %q", v.kind(), example)
	}
	return s
}

func (r *reader) boolean(v value, key string) bool {
	b, ok := v.data.(bool)
	if !ok {
		r.wrong(v, key, "is %s; write true or false", v.kind())
	}
	return b
}

func (r *reader) integer(v value, key string, least, most int64) int64 {
	n, isNumber := v.data.(json.Number)
	i, err := n.Int64()
	if !isNumber || err != nil || i < least || i > most {
		r.wrong(v, key, "write a whole number from %d to %d", least, most)
		return least
	}
	return i
}

// texts reads a list of text. A null or absent list is nil.
func (r *reader) texts(v value, key, example string) []string {
	items, ok := v.data.([]value)
	if !ok {
		r.wrong(v, key, "is %s; write a list, such as [%q]", v.kind(), example)
		return nil
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		out = append(out, r.text(item, fmt.Sprintf("%s[%d]", key, i), example))
	}
	return out
}

// set makes field readers that store into a variable.
func (r *reader) setText(to *string, example string) func(value, string) {
	return func(v value, key string) { *to = r.text(v, key, example) }
}

func (r *reader) setBool(to *bool) func(value, string) {
	return func(v value, key string) { *to = r.boolean(v, key) }
}

func (r *reader) setTexts(to *[]string, example string) func(value, string) {
	return func(v value, key string) { *to = r.texts(v, key, example) }
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// suggestion names the known key that was likely meant.
func suggestion(key string, fields map[string]func(value, string)) string {
	best := typo.Meant(key, slices.Collect(maps.Keys(fields)))
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// choices names the known keys, where they are few.
func choices(fields map[string]func(value, string)) string {
	switch keys := slices.Sorted(maps.Keys(fields)); {
	case len(keys) == 0:
		return "; there are no keys here: write true or {}"
	case len(keys) <= 16:
		return "; choose from " + strings.Join(keys, ", ")
	}
	return ""
}

// list writes words as a person would.
func list(words []string) string {
	words = slices.Clone(words)
	slices.Sort(words)
	return strings.Join(words, ", ")
}
