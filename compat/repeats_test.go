package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/internal/cputest"
)

func TestUnrepeated(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":1,"b":2,"a":3}`:                             `{"a":3,"b":2}`,
		`{"a":1,"b":2,"a":3,"\u0061":4}`:                  `{"a":4,"b":2}`,
		`{"a":{"x":1,"x":2},"a":{"y":1,"z":0,"y":2}}`:     `{"a":{"y":2,"z":0}}`,
		`[{"a":1,"a":2},{"a":1},"a","a",{"b":[{"c":1}]}]`: `[{"a":2},{"a":1},"a","a",{"b":[{"c":1}]}]`,
		`{"a":{"a":1},"b":{"a":1,"a":[1,{"a":2,"a":3}]}}`: `{"a":{"a":1},"b":{"a":[1,{"a":3}]}}`,
		`{"":1,"":"","":{}}`:                              `{"":{}}`,
		`{"a\"":1,"a\"":",","b":"{"}`:                     `{"a\"":",","b":"{"}`,
		`{}`:                                              `{}`, `[]`: `[]`, `1`: `1`, `"a"`: `"a"`, `{"a":{},"b":[],"a":[]}`: `{"a":[],"b":[]}`,
	} {
		got, err := Prepare([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, string(got), in)
	}
}

// anyJSON is any value. Keys are few, so that they repeat.
func anyJSON(rng *rand.Rand, depth int) string {
	switch n := rng.IntN(8); {
	case n < 3 && depth > 0:
		var members []string
		for range rng.IntN(30) / (1 + rng.IntN(20)) {
			key := []string{"a", "b", `\u0061`, `\"`, "ä", `\u00e4`, ""}[rng.IntN(7)]
			if rng.IntN(3) > 0 {
				key += fmt.Sprint(rng.IntN(40))
			}
			members = append(members, `"`+key+`":`+anyJSON(rng, depth-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	case n < 5 && depth > 0:
		var items []string
		for range rng.IntN(4) {
			items = append(items, anyJSON(rng, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	case n == 5:
		return `"{,\"a\":1,"`
	case n == 6:
		return "null"
	}
	return fmt.Sprint(rng.IntN(100))
}

// Every parser reads what Go's, for which the last key counts, reads of what was given.
func TestParsersAgree(t *testing.T) {
	t.Parallel()
	rng, repeated := rand.New(rand.NewPCG(1, 2)), 0
	for range 5000 {
		in := anyJSON(rng, 6)
		var want, got any
		require.NoError(t, json.Unmarshal([]byte(in), &want))
		out, err := Prepare([]byte(in))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &got), "%s of %s", out, in)
		require.Equal(t, want, got, "%s of %s", out, in)
		require.Equal(t, want, firstOf(gjson.ParseBytes(out)), "%s of %s", out, in)
		if len(out) < len(in) {
			repeated++
		}
	}
	require.Greater(t, repeated, 500)
}

// firstOf is a value as a parser reads it for which the first key counts.
func firstOf(v gjson.Result) any {
	switch {
	case v.IsObject():
		m := map[string]any{}
		v.ForEach(func(k, v gjson.Result) bool {
			if _, ok := m[k.String()]; !ok {
				m[k.String()] = firstOf(v)
			}
			return true
		})
		return m
	case v.IsArray():
		list := []any{}
		for _, e := range v.Array() {
			list = append(list, firstOf(e))
		}
		return list
	}
	return v.Value()
}

// However keys repeat, twice the size takes no more than three times as long.
func TestRepeatsTakeLinearTime(t *testing.T) {
	for name, make := range map[string]func(n int) []byte{
		"one object, one key":     func(n int) []byte { return []byte(`{` + strings.Repeat(`"a":1,`, n) + `"a":2}`) },
		"one object, all keys":    func(n int) []byte { return manyKeys(n, false) },
		"one object, one of them": func(n int) []byte { return manyKeys(n, true) },
		"nested": func(n int) []byte {
			return []byte(strings.Repeat(`{"a":1,"a":`, 250) + `[` + strings.Repeat(`{"b":1,"b":2},`, n) + `1]` + strings.Repeat(`}`, 250))
		},
		"nested, the first ones": func(n int) []byte {
			return []byte(strings.Repeat(`{"a":`, 250) + `[` + strings.Repeat(`1,`, n) + `1]` + strings.Repeat(`,"a":1}`, 250))
		},
	} {
		t.Run(name, func(t *testing.T) {
			measure := func(n int) time.Duration {
				body, best := make(n), time.Hour
				for range 5 {
					own := bytes.Clone(body)
					var err error
					best = min(best, cputest.Time(func() { _, err = Prepare(own) }))
					require.NoError(t, err)
				}
				return best
			}
			small, large := measure(50_000), measure(100_000)
			t.Log(small, large)
			require.Less(t, large, 3*small+20*time.Millisecond)
		})
	}
}

func manyKeys(n int, repeat bool) []byte {
	b := []byte(`{`)
	for i := range n {
		b = fmt.Appendf(b, `"key%d":%d,`, i, i)
	}
	if repeat {
		return append(b, `"key1":1}`...)
	}
	return append(b, `"last":1}`...)
}

func BenchmarkPrepare(b *testing.B) {
	message := `{"type":"human","id":"01234567-89ab-cdef","content":"` + strings.Repeat("some words of it ", 20) + `","additional_kwargs":{},"response_metadata":{"a":1}}`
	body := []byte(`{"assistant_id":"agent","input":{"messages":[` + strings.Repeat(message+",", 99) + message + `]}}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Prepare(bytes.Clone(body)); err != nil {
			b.Fatal(err)
		}
	}
}
