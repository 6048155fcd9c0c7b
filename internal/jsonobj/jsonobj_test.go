package jsonobj

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderAndBytesStay(t *testing.T) {
	t.Parallel()
	o, err := Parse([]byte(` {"b": 1.0, "a":[1, 2],"ü":{"x":123456789012345678901234567890}} `))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a", "ü"}, o.Keys())
	o.SetText("a", `quo"te`)
	o.Set("new", json.RawMessage(`null`))
	o.Delete("b")
	require.Equal(t, `{"a":"quo\"te","ü":{"x":123456789012345678901234567890},"new":null}`, string(o.JSON()))
	require.Equal(t, `quo"te`, o.Text("a"))
	require.Empty(t, o.Text("new"))
	require.Nil(t, o.Get("b"))
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, want string
		fails    bool
	}{
		{in: "", want: "{}"}, {in: "null", want: "{}"}, {in: "  ", want: "{}"}, {in: "{}", want: "{}"},
		{in: `{"a":1,"a":2}`, want: `{"a":2}`}, {in: `{"\u0061":1}`, want: `{"a":1}`},
		{in: "[]", fails: true}, {in: "3", fails: true}, {in: `"x"`, fails: true},
	} {
		o, err := Parse([]byte(tt.in))
		if tt.fails {
			require.ErrorIs(t, err, ErrNotObject, tt.in)
			require.Equal(t, "{}", string(Of([]byte(tt.in)).JSON()))
			continue
		}
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.want, string(o.JSON()))
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"a":1,"b":{"y":2},"c":3}`, string(Merge([]byte(`{"a":1,"b":{"x":1}}`), []byte(`{"b":{"y":2},"c":3}`))))
	require.Equal(t, `{}`, string(Merge(nil, nil)))
}

// FuzzQuote: whatever the text, it comes back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "é☃😀", "\x00\n\"\\", "<&>", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		require.NoError(t, json.Unmarshal(Quote(s), &back))
		var std string
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &std))
		require.Equal(t, std, back)
	})
}
