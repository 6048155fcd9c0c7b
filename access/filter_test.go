package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/contain"
)

func parsed(t *testing.T, source string) *Filter {
	t.Helper()
	f, err := ParseFilter(json.RawMessage(source))
	require.NoError(t, err, source)
	return f
}

func TestMatch(t *testing.T) {
	tests := []struct {
		filter, metadata string
		want             bool
	}{
		{``, `{}`, true},
		{`null`, ``, true},
		{`{}`, `{"a":1}`, true},
		{`{"a":1}`, ``, false},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`{"a":3}`, `{"a":"3"}`, false},
		{`{"a":"3"}`, `{"a":3}`, false},
		{`{"a":1}`, `{"a":true}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":null}`, `{"a":null}`, true},
		{`{"a":{"$eq":"x"}}`, `{"a":"x"}`, true},
		{`{"a":{"$eq":{"b":1}}}`, `{"a":{"b":1}}`, true},
		{`{"a":{"$eq":{"b":1}}}`, `{"a":{"b":1,"c":2}}`, false},
		{`{"a":[1,2]}`, `{"a":[1,2]}`, true},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":"x"}`, `{"a":["x"]}`, false},
		{`{"a":{"$contains":"x"}}`, `{"a":["y","x"]}`, true},
		{`{"a":{"$contains":"x"}}`, `{"a":"x"}`, false},
		{`{"a":{"$contains":"x"}}`, `{"a":"axb"}`, false},
		{`{"a":{"$contains":"x"}}`, `{"a":{"x":1}}`, false},
		{`{"a":{"$contains":["x","y"]}}`, `{"a":["y","z","x"]}`, true},
		{`{"a":{"$contains":["x","y"]}}`, `{"a":["y"]}`, false},
		{`{"a":{"$contains":3}}`, `{"a":["3"]}`, false},
		{`{"a":{"$eq":["x"],"$contains":"x"}}`, `{"a":["x"]}`, true},
		{`{"a":{"$eq":["y"],"$contains":"x"}}`, `{"a":["y"]}`, false},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"$or":[{"a":1},{"b":2}]}`, `{"b":2}`, true},
		{`{"$or":[{"a":1},{"b":2}]}`, `{"b":1}`, false},
		{`{"$and":[{"a":1},{"b":2}]}`, `{"a":1,"b":2}`, true},
		{`{"$and":[{"a":1},{"b":2}]}`, `{"a":1}`, false},
		{`{"o":1,"$or":[{"a":1},{"a":2}]}`, `{"o":1,"a":2}`, true},
		{`{"o":1,"$or":[{"a":1},{"a":2}]}`, `{"o":2,"a":2}`, false},
		{`{"$and":[{"o":1},{"$or":[{"a":1},{"a":2}]}]}`, `{"o":1,"a":2}`, true},
		{`{"a":1}`, `[1]`, false},
		{`{"a":1}`, `null`, false},
		{`{"a":1}`, `{"a":1`, false},
		{`{"\u0061":"\u00e9"}`, `{"a":"é"}`, true},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, parsed(t, tt.filter).Match([]byte(tt.metadata)), "%s on %s", tt.filter, tt.metadata)
	}
}

// What cannot be applied selects nothing: it is an error that names the filter of the handler.
func TestInvalidFilters(t *testing.T) {
	for _, source := range []string{
		`[]`, `"owner"`, `1`, `true`, `{`, `{"a":{"$ne":1}}`, `{"a":{"$in":[1]}}`, `{"a":{"$eq":1,"$ne":2}}`, `{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"$eq":1,"b":2}}`,
		`{"$not":{"a":1}}`, `{"$eq":1}`, `{"$or":[]}`, `{"$or":[{"a":1}]}`, `{"$and":[{"a":1}]}`, `{"$or":{"a":1}}`, `{"$or":null}`, `{"$or":[1,2]}`, `{"$or":[{"a":1},{"b":{"$gt":1}}]}`,
		`{"$and":[{"a":1},{"$or":[{"b":1},{"$and":[{"c":1},{"c":2}]}]}]}`,
	} {
		f, err := ParseFilter(json.RawMessage(source))
		require.Nil(t, f, source)
		refusal := (*Refusal)(nil)
		require.True(t, errors.As(err, &refusal), "%s: %v", source, err)
		require.Equal(t, 500, refusal.Status)
		require.Contains(t, string(refusal.Detail), "filter", source)
	}
}

func TestTermsOfFilters(t *testing.T) {
	term := func(k, v string) contain.Term { return contain.Term{Key: k, Value: v} }
	tests := []struct {
		filter string
		want   [][]contain.Term
		exact  bool
	}{
		{`{}`, nil, true},
		{`{"a":"x"}`, [][]contain.Term{{term("a", `"x`)}}, true},
		{`{"a":{"$contains":"x"}}`, [][]contain.Term{{term("a", `["x`)}}, true},
		{`{"a":{"$contains":["x",1.0]}}`, [][]contain.Term{{term("a", `["x`), term("a", "[1e0")}}, true},
		{`{"a":{"$contains":["x",{}]}}`, [][]contain.Term{{term("a", `["x`)}}, false},
		{`{"a":{"$contains":[]}}`, nil, false},
		{`{"a":{"$eq":["x"],"$contains":"x"}}`, [][]contain.Term{{term("a", `["x`)}}, false},
		{`{"a":"x","b":{"$contains":"x"}}`, [][]contain.Term{{term("a", `"x`), term("b", `["x`)}}, true},
		{`{"$or":[{"a":"x"},{"b":2}]}`, [][]contain.Term{{term("a", `"x`)}, {term("b", "2e0")}}, true},
		{`{"$or":[{"a":"x"},{"b":{"$contains":2}}]}`, [][]contain.Term{{term("a", `"x`)}, {term("b", "[2e0")}}, true},
		{`{"a":"x","$or":[{"b":1},{"b":{"$contains":[[]]}}]}`, [][]contain.Term{{term("a", `"x`), term("b", "1e0")}, {term("a", `"x`)}}, false},
		{`{"$or":[{"a":"x"},{}]}`, nil, false},
	}
	for _, tt := range tests {
		got, exact := parsed(t, tt.filter).Terms()
		require.Equal(t, tt.want, got, tt.filter)
		require.Equal(t, tt.exact, exact, tt.filter)
	}
}

func TestNarrow(t *testing.T) {
	ctx := context.Background()
	require.Nil(t, Reach(ctx, Threads))
	require.Equal(t, ctx, Narrow(ctx, Threads, nil))
	mine := Narrow(ctx, Threads, parsed(t, `{"owner":"me"}`))
	red := Narrow(mine, Threads, parsed(t, `{"team":"red"}`))
	require.True(t, Reach(mine, Threads).Match([]byte(`{"owner":"me"}`)))
	require.False(t, Reach(red, Threads).Match([]byte(`{"owner":"me"}`)))
	require.False(t, Reach(red, Threads).Match([]byte(`{"team":"red"}`)))
	require.True(t, Reach(red, Threads).Match([]byte(`{"owner":"me","team":"red"}`)))
	require.Nil(t, Reach(red, Crons))
	require.Nil(t, Reach(Everything(red), Threads))
	require.NotNil(t, Reach(Narrow(Everything(red), Threads, parsed(t, `{"a":1}`)), Threads))
}

// A filter either is an error or can be held against any document, and then its terms never leave out what it selects.
func FuzzFilter(f *testing.F) {
	f.Add(`{"owner":"me","$or":[{"a":1},{"b":{"$contains":["x"]}}]}`, `{"owner":"me","a":1.0}`)
	f.Add(`{"a":{"$eq":null}}`, `{"a":null}`)
	f.Add(`{"$and":[{"a":1},{"b":true}]}`, `[]`)
	f.Fuzz(func(t *testing.T, filter, doc string) {
		c, err := ParseFilter(json.RawMessage(filter))
		if err != nil || !json.Valid([]byte(doc)) || !c.Match([]byte(doc)) {
			return
		}
		alternatives, _ := c.Terms()
		if alternatives == nil {
			return
		}
		has := map[contain.Term]bool{}
		for _, term := range contain.Terms([]byte(doc)) {
			has[term] = true
		}
		for _, a := range alternatives {
			all := true
			for _, term := range a {
				all = all && (has[term] || term.OfList() && has[term.Long()])
			}
			if all {
				return
			}
		}
		t.Fatalf("%s selects %s, which has none of %q", filter, doc, alternatives)
	})
}

// Metadata that is scanned and metadata that is decoded select the same: with spaces, escapes, equal keys, keys within values, and what is no object.
func TestScannedMetadataIsReadLikeDecoded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	blank := func() string { return pick("", "", "", " ", "\n\t") }
	var value func(depth int) string
	object := func(depth int) string {
		var pairs []string
		for range random.IntN(4) {
			key := pick("owner", "owner", "a", "b", "ow", "owner ", "é", `\u006fwner`, `a\"owner`)
			pairs = append(pairs, blank()+`"`+key+`"`+blank()+":"+blank()+value(depth+1)+blank())
		}
		return "{" + blank() + strings.Join(pairs, ",") + "}"
	}
	value = func(depth int) string {
		if depth < 3 && random.IntN(3) == 0 {
			if random.IntN(2) == 0 {
				return object(depth)
			}
			return "[" + value(depth+1) + "," + blank() + value(depth+1) + "]"
		}
		return pick(`"ada"`, `"ada"`, `"ben"`, `"a,\"owner\":\"ada"`, `"{owner"`, `"é"`, "1", "1.0", "10e-1", "true", "null", `""`)
	}
	filters := []string{
		`{"owner":"ada"}`, `{"owner":"é","a":1}`, `{"owner":null}`, `{"é":"ada"}`, `{"owner":{"$contains":"ada"}}`, `{"$or":[{"owner":"ada"},{"a":"ben"}]}`, `{"$or":[{"owner":"ada"},{}]}`,
		`{"owner":{"$eq":{"owner":"ada"}}}`,
	}
	selected := 0
	for range 50_000 {
		f, metadata := parsed(t, pick(filters...)), blank()+object(0)+blank()
		if random.IntN(20) == 0 {
			metadata = pick(`[{"owner":"ada"}]`, `null`, `"owner"`, `{"owner":"ada"`, `{"owner":"ada"}x`, `{"owner":"ada",}`, `{"owner" "ada"}`, `{owner:"ada"}`, ``, ` `, `{"owner":"ada"}{"a":1}`)
		}
		var o decoded
		text := metadata
		if text == "" {
			text = "{}"
		}
		want := json.Unmarshal([]byte(text), &o) == nil && o != nil && matches(f, o)
		require.Equal(t, want, f.Match([]byte(metadata)), "%s", metadata)
		if want {
			selected++
		}
	}
	require.Greater(t, selected, 1000)
	mine := parsed(t, `{"owner":"ada"}`)
	long := `{"x":"` + strings.Repeat("x", maxScanned) + `","owner":"ada"}`
	require.True(t, mine.Match([]byte(long)))
	require.False(t, mine.Match([]byte(strings.ReplaceAll(long, "ada", "ben"))))
}

// Halves of surrogate pairs are all read as one character, so that a filter with one would select what belongs to others.
func TestFiltersWithHalvesOfCharacters(t *testing.T) {
	t.Parallel()
	for text, half := range map[string]bool{
		`a\ud800`: true, `\ud800\ud800`: true, `\udc00`: true, `\udc00\ud800`: true, `\ud800x\udc00`: true, `\ud83d\ude00\ud83d`: true, `\\\ud800`: true, `\ud800\n`: true,
		`\ud83d\ude00`: false, `\\ud800`: false, `\u0041\n`: false, `\ufffd`: false, `😀`: false, `\ud83d\ude00\ud83d\ude00`: false, `\\`: false,
	} {
		for _, filter := range []string{`{"owner":"` + text + `"}`, `{"` + text + `":1}`, `{"$or":[{"a":1},{"owner":{"$contains":["` + text + `"]}}]}`} {
			_, err := ParseFilter(json.RawMessage(filter))
			require.Equal(t, half, err != nil, filter)
		}
	}
}

// Filters that were parsed before are the same ones again, with the same meaning; what is wrong is wrong each time, and memory is bounded however many users there are.
func TestFiltersAreKept(t *testing.T) { //nolint:paralleltest // it counts allocations
	for range 2 {
		f, err := ParseFilter(json.RawMessage(` {"owner": "kept"} `))
		require.NoError(t, err)
		require.True(t, f.Match([]byte(`{"owner":"kept"}`)))
		require.False(t, f.Match([]byte(`{"owner":"another"}`)))
		all, err := ParseFilter(json.RawMessage(`{}`))
		require.NoError(t, err)
		require.Nil(t, all)
		_, err = ParseFilter(json.RawMessage(`{"owner": {"$ne": "kept"}}`))
		require.Error(t, err)
	}
	one, err := ParseFilter(json.RawMessage(`{"owner": "kept"}`))
	require.NoError(t, err)
	two, err := ParseFilter(json.RawMessage(`{"owner": "kept"}`))
	require.NoError(t, err)
	require.Same(t, one, two)
	require.Less(t, testing.AllocsPerRun(100, func() { _, _ = ParseFilter(json.RawMessage(`{"owner": "kept"}`)) }), 2.0)
	for i := range 100_000 {
		_, err := ParseFilter(json.RawMessage(fmt.Sprintf(`{"owner":"user %d"}`, i)))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, kept.Weight(), 4<<20)
	long, err := ParseFilter(json.RawMessage(`{"owner":"` + strings.Repeat("x", maxKept) + `"}`))
	require.NoError(t, err)
	again, err := ParseFilter(json.RawMessage(`{"owner":"` + strings.Repeat("x", maxKept) + `"}`))
	require.NoError(t, err)
	require.NotSame(t, long, again)
}
