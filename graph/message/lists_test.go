package message

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/internal/cputest"
	"understudy/internal/seedtest"
)

// addOneByOne is addLists as LangChain has it: each item is merged with the first that fits.
func addOneByOne(a, b []json.RawMessage) ([]json.RawMessage, error) {
	out := append([]json.RawMessage(nil), a...)
next:
	for _, item := range b {
		v := gjson.ParseBytes(item)
		index, id := v.Get("index"), v.Get("id").String()
		for i, have := range out {
			o := gjson.ParseBytes(have)
			oid := o.Get("id").String()
			if !v.IsObject() || !mergeable(index) || !o.IsObject() || o.Get("index").Raw != index.Raw || oid != "" && id != "" && oid != id {
				continue
			}
			sum, err := addItems(have, []json.RawMessage{item})
			if err != nil {
				return nil, err
			}
			out[i] = sum
			continue next
		}
		out = append(out, item)
	}
	return out, nil
}

func TestListsAreAddedAsOneByOne(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	list := func(n, indexes int) (all []json.RawMessage) {
		for i := range n {
			if r.IntN(10) == 0 {
				all = append(all, json.RawMessage([]string{`"text"`, `7`, `{"id":"a","x":[1]}`, `{"index":1.5,"text":"x"}`, `null`}[r.IntN(5)]))
				continue
			}
			item := fmt.Sprintf(`{"index":%d,"text":"%d."`, r.IntN(indexes), i)
			item += []string{"", `,"type":"text"`, `,"type":"non_standard","value":{"v":"x","type":"y"}`, `,"type":"non_standard","value":{"w":"z"}`}[r.IntN(4)]
			item += []string{"", "", `,"id":null`, `,"id":"a"`, `,"id":"b"`, `,"id":""`}[r.IntN(6)]
			item += []string{"", `,"more":[{"index":0,"t":"u"}]`, `,"n":1`}[r.IntN(3)]
			all = append(all, json.RawMessage(item+"}"))
		}
		return all
	}
	for range 2000 {
		indexes := 1 + r.IntN(20)
		a, b := list(r.IntN(40), indexes), list(r.IntN(60), indexes)
		want, failure := addOneByOne(a, b)
		got, err := addLists(a, b)
		require.Equal(t, failure == nil, err == nil, "%v %v", failure, err)
		require.JSONEq(t, string(array(want)), string(array(got)), "%s + %s", array(a), array(b))
	}
}

// Ten times the chunks, or ten times the members of a chunk, take about ten times the time.
func TestSumsTakeLinearTime(t *testing.T) {
	t.Parallel()
	blocks := func(items ...json.RawMessage) Message {
		m := AIChunk("")
		m.Content = Content{Blocks: items}
		return m
	}
	each := func(n int, format string) (all []json.RawMessage) {
		for i := range n {
			all = append(all, json.RawMessage(strings.ReplaceAll(format, "$", fmt.Sprint(i))))
		}
		return all
	}
	kwargs := func(raw string) Message {
		m := AIChunk("")
		m.AdditionalKwargs = json.RawMessage(raw)
		return m
	}
	twice := func(m Message) []Message { return []Message{m, m} }
	for name, chunks := range map[string]func(n int) []Message{
		"blocks of their own": func(n int) (all []Message) {
			for _, b := range each(n, `{"type":"text","text":"a","index":$}`) {
				all = append(all, blocks(b))
			}
			return all
		},
		"blocks in turn": func(n int) (all []Message) {
			for i, b := range each(n, `{"type":"text","text":"a","index":$}`) {
				all = append(all, blocks(b), blocks(json.RawMessage(fmt.Sprintf(`{"text":"b","index":%d}`, i/2))))
			}
			return all
		},
		"many blocks at once":      func(n int) []Message { return twice(blocks(each(n, `{"text":"a","index":$}`)...)) },
		"one block in many pieces": func(n int) []Message { return twice(blocks(each(n, `{"text":"aaaaaaaa","index":0}`)...)) },
		"one index, many ids":      func(n int) []Message { return twice(blocks(each(n, `{"text":"a","index":0,"id":"$"}`)...)) },
		"one index, ids come later": func(n int) []Message {
			return append(twice(blocks(each(n, `{"index":0}`)...)), twice(blocks(each(n, `{"index":0,"id":"$"}`)...))...)
		},
		"many members": func(n int) []Message {
			return twice(kwargs("{" + strings.Trim(string(array(each(n, `"$":"a"`))), "[]") + "}"))
		},
		"many members of a list's item": func(n int) []Message {
			return twice(kwargs(`{"a":[{"index":0,` + strings.Trim(string(array(each(n, `"$":"a"`))), "[]") + "}]}"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			took := func(n int) time.Duration {
				list := chunks(n)
				return cputest.Time(func() {
					var s Sum
					for _, m := range list {
						s.Add(m)
					}
					s.Message()
				})
			}
			var few, many time.Duration
			for range 5 { // the machine may be busy: the best of some tries
				few, many = took(1_000), took(10_000)
				if many < 25*few+50*time.Millisecond {
					return
				}
			}
			t.Errorf("%s, and ten times as many take %s", few, many)
		})
	}
}

// Arguments that no storage could keep are those of an invalid call, and so is the message saved.
func TestArgumentsAreNotTooDeep(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	_, err := Arguments(deep(maxArguments))
	require.NoError(t, err)
	_, err = Arguments(deep(maxArguments + 1))
	require.ErrorContains(t, err, "nested more than")
}

// What a sum shows in between is what Add of the same chunks shows, and it does not disturb the sum.
func TestPartialSums(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		var list []Message
		for range 1 + r.IntN(60) {
			m := AIChunk(strings.Repeat("ä", r.IntN(4)))
			m.ID = "m"
			if r.IntN(2) == 0 {
				index := r.IntN(2)
				m = m.WithCallChunks(ToolCallChunk{Index: &index, Name: "f"[:r.IntN(2)], Args: []string{`{"a":`, `[1,`, `"b`, `"}`}[r.IntN(4)]})
			}
			list = append(list, m)
		}
		var shown, plain Sum
		whole := list[0]
		for i, m := range list {
			shown.Add(m)
			plain.Add(m)
			if i > 0 {
				var err error
				whole, err = Add(whole, m)
				require.NoError(t, err)
			}
			if r.IntN(3) == 0 {
				require.Equal(t, string(whole.AppendJSON(nil)), string(shown.Partial().AppendJSON(nil)), "seed %d, chunk %d", seed, i)
			}
		}
		require.Equal(t, string(plain.Message().AppendJSON(nil)), string(shown.Message().AppendJSON(nil)), "seed %d", seed)
	}
}
