package contain

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		name       string
		doc, query string
		want       bool
	}{
		{"no query", `{"a":1}`, ``, true},
		{"empty query", `{"a":1}`, `{}`, true},
		{"empty doc, empty query", ``, `{}`, true},
		{"empty doc", ``, `{"a":1}`, false},
		{"same", `{"a":1}`, `{"a":1}`, true},
		{"more in doc", `{"a":1,"b":2}`, `{"a":1}`, true},
		{"more in query", `{"a":1}`, `{"a":1,"b":2}`, false},
		{"other value", `{"a":1}`, `{"a":2}`, false},
		{"nested", `{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1}}}`, true},
		{"nested other", `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, false},
		{"nested empty object", `{"a":{"b":1}}`, `{"a":{}}`, true},
		{"empty object is no scalar", `{"a":1}`, `{"a":{}}`, false},
		{"lists equal", `{"a":[1,{"b":2}]}`, `{"a":[1.0,{"b":2}]}`, true},
		{"no part of a list", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"order of a list", `{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{"objects in lists are equal, not contained", `{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":1}]}`, false},
		{"list and scalar", `{"a":[1]}`, `{"a":1}`, false},
		{"null", `{"a":null}`, `{"a":null}`, true},
		{"null is not absent", `{}`, `{"a":null}`, false},
		{"true is not 1", `{"a":true}`, `{"a":1}`, false},
		{"text is not a number", `{"a":"1"}`, `{"a":1}`, false},
		{"integer and float", `{"a":1}`, `{"a":1.0}`, true},
		{"exponent", `{"a":1500}`, `{"a":1.5E+3}`, true},
		{"small", `{"a":0.05}`, `{"a":5e-2}`, true},
		{"zeros", `{"a":-0.0}`, `{"a":0}`, true},
		{"sign", `{"a":-1}`, `{"a":1}`, false},
		{"large integers keep their digits", `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, false},
		{"large integers", `{"a":12345678901234567890}`, `{"a":1.234567890123456789e19}`, true},
		{"beyond float", `{"a":1e999}`, `{"a":10e998}`, true},
		{"escapes", `{"a":"\u0041\n"}`, `{"a":"A\u000a"}`, true},
		{"escaped keys", `{"\u0061":1}`, `{"a":1}`, true},
		{"not ASCII", `{"a":"é"}`, `{"a":"\u00e9"}`, true},
		{"space", " {\"a\" : [ 1 , 2 ] }\n", `{"a":[1,2]}`, true},
		{"scalars", `1`, `1.0`, true},
		{"broken doc", `{"a":`, `{"a":1}`, false},
		{"broken query", `{"a":1}`, `{"a":`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Match([]byte(tt.doc), []byte(tt.query)))
		})
	}
}

func TestTerms(t *testing.T) {
	doc := `{"z":1.50,"a":"x","l":[1, 1.0,"1",null,[1],{"p":1},"[1e0","` + longText() + `"],"o":{"p":1},"n":null,"b":true,"long":"` + longText() + `"}`
	require.Equal(t, []Term{{"a", `"x`}, {"b", "true"}, {"l", `["1`}, {"l", `["[1e0`}, {"l", "[1e0"}, {"l", "[null"}, {"n", "null"}, {"z", "15e-1"}}, Terms([]byte(doc)))
	require.Empty(t, Terms(nil))
	require.Empty(t, Terms([]byte(`[1]`)))

	m, err := Parse([]byte(`{"z":1.5,"a":"x"}`))
	require.NoError(t, err)
	terms, all := m.Terms()
	require.Equal(t, []Term{{"a", `"x`}, {"z", "15e-1"}}, terms)
	require.True(t, all)

	m, err = Parse([]byte(`{"a":"x","o":{"p":1},"long":"` + longText() + `"}`))
	require.NoError(t, err)
	terms, all = m.Terms()
	require.Equal(t, []Term{{"a", `"x`}}, terms)
	require.False(t, all)

	require.True(t, (*Matcher)(nil).Everything())
	require.False(t, m.Everything())
}

// Few items of lists are terms, however many lists there are.
func TestTermsOfLongLists(t *testing.T) {
	list := func(n int) (items []int) {
		for i := range n {
			items = append(items, i)
		}
		return items
	}
	doc := map[string][]int{"full": list(maxItems), "long": list(maxItems + 1)}
	raw, err := json.Marshal(doc)
	require.NoError(t, err)
	terms := Terms(raw)
	require.Len(t, terms, maxItems+1)
	require.Contains(t, terms, Term{Key: "long"}.Long())
	require.NotContains(t, terms, Term{Key: "full"}.Long())

	for n := range 100 {
		doc[string(rune('A'+n))] = list(maxItems)
	}
	raw, err = json.Marshal(doc)
	require.NoError(t, err)
	terms = Terms(raw)
	require.Len(t, terms, maxAllItems+len(doc)-maxAllItems/maxItems)
	require.Equal(t, terms, Terms(raw))
}

func longText() string {
	b := make([]byte, maxTerm+1)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}

func TestCompare(t *testing.T) {
	tests := []struct {
		a, b  string
		order int
		ok    bool
	}{
		{`1`, `2`, -1, true},
		{`10`, `9.5`, 1, true},
		{`-1`, `1`, -1, true},
		{`-2`, `-1`, -1, true},
		{`0`, `-1`, 1, true},
		{`0`, `1`, -1, true},
		{`1`, `1.0`, 0, true},
		{`12345678901234567891`, `12345678901234567890`, 1, true},
		{`"a"`, `"b"`, -1, true},
		{`"10"`, `"9"`, -1, true},
		{`"é"`, `"\u00e9"`, 0, true},
		{`false`, `true`, -1, true},
		{`1`, `"1"`, 0, false},
		{`null`, `null`, 0, false},
		{`[1]`, `[1]`, 0, false},
		{``, `1`, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.a+" "+tt.b, func(t *testing.T) {
			order, ok := Compare([]byte(tt.a), []byte(tt.b))
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.order, order)
		})
	}
}

// A document contains itself, whatever it is, and what is indexed of a query is indexed of the documents it matches.
func FuzzMatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"é\n"}],"c":-1.5e3}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`0e-0`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		if !Match(doc, doc) || !Equal(doc, doc) {
			t.Fatalf("%q does not contain itself", doc)
		}
		m, err := Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := m.Terms()
		if got := slices.DeleteFunc(Terms(doc), Term.OfList); !slices.Equal(got, want) {
			t.Fatalf("terms of %q: as a document %q, as a query %q", doc, got, want)
		}
	})
}

func TestFilter(t *testing.T) {
	doc := `{"n":5,"s":"b","o":{"x":1,"y":2},"l":[1,2],"null":null,"flag":true}`
	tests := []struct {
		filter string
		want   bool
	}{
		{``, true},
		{`null`, true},
		{`{}`, true},
		{`{"n":5.0}`, true},
		{`{"n":6}`, false},
		{`{"n":5,"s":"a"}`, false},
		{`{"n":{"$eq":5}}`, true},
		{`{"n":{"$ne":5}}`, false},
		{`{"n":{"$gt":4,"$lt":6}}`, true},
		{`{"n":{"$gt":5}}`, false},
		{`{"n":{"$gte":5}}`, true},
		{`{"n":{"$lte":5}}`, true},
		{`{"n":{"$lt":5}}`, false},
		{`{"n":{"$gt":"4"}}`, false},
		{`{"s":{"$gt":"a"}}`, true},
		{`{"absent":{"$ne":1}}`, true},
		{`{"absent":{"$gt":1}}`, false},
		{`{"absent":null}`, true},
		{`{"absent":{"$eq":null}}`, true},
		{`{"null":null}`, true},
		{`{"o":{"x":1}}`, true},
		{`{"o":{"$eq":{"x":1}}}`, false},
		{`{"o":{"x":{"$gt":0}}}`, true},
		{`{"l":[1,2]}`, true},
		{`{"l":[1]}`, false},
		{`{"flag":true}`, true},
		{`{"flag":1}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.filter, func(t *testing.T) {
			f, err := ParseFilter([]byte(tt.filter))
			require.NoError(t, err)
			require.Equal(t, tt.want, f.Match([]byte(doc)))
		})
	}
	for _, bad := range []string{`[]`, `1`, `{"a":`, `{"a":{"$like":1}}`, `{"$eq":1}`} {
		_, err := ParseFilter([]byte(bad))
		require.Error(t, err, bad)
	}
}

// Whatever can be made ready can be held against any document.
func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"a":{"$gt":1},"b":[1,{"c":"x"}]}`), []byte(`{"a":2,"b":[1,{"c":"x"}]}`))
	f.Add([]byte(`{"a":{"$in":[1]}}`), []byte(`null`))
	f.Add([]byte(`{"$eq":1}`), []byte(`1`))
	f.Add([]byte(`{"":{"$eq":null}}`), []byte(`{"":null}`))
	f.Fuzz(func(_ *testing.T, filter, doc []byte) {
		if c, err := ParseFilter(filter); err == nil && json.Valid(doc) {
			c.Match(doc)
		}
	})
}

// Equal reports whether two JSON texts are the same value.
func Equal(a, b []byte) bool {
	va, err := parse(a)
	return err == nil && va.matches(b, true)
}
