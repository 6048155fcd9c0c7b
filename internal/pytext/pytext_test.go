package pytext_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/pytext"
)

// What Python 3.12 prints for json.loads of the same text.
func TestPython(t *testing.T) {
	t.Parallel()
	tests := []struct{ raw, repr, dumps string }{
		{``, `{}`, `{}`},
		{`{"a":1,"b":[true,false,null],"c":{"d":1.5}}`, `{'a': 1, 'b': [True, False, None], 'c': {'d': 1.5}}`, `{"a": 1, "b": [true, false, null], "c": {"d": 1.5}}`},
		{`"it's"`, `"it's"`, `"it's"`},
		{`"both ' and \""`, `'both \' and "'`, `"both ' and \""`},
		{`"a\nb\t\\"`, `'a\nb\t\\'`, `"a\nb\t\\"`},
		{`"<ü☃😀>"`, `'<ü☃😀>'`, `"<ü☃😀>"`},
		{`"\u0001\u00ad\u2028"`, `'\x01\xad\u2028'`, "\"\\u0001\u00ad\u2028\""},
		{`[]`, `[]`, `[]`},
	}
	for _, tt := range tests {
		require.Equal(t, tt.repr, pytext.Repr(json.RawMessage(tt.raw)), tt.raw)
		require.Equal(t, tt.dumps, pytext.Dumps(json.RawMessage(tt.raw)), tt.raw)
	}
}

func FuzzPython(f *testing.F) {
	f.Add(`{"a":[1,"x",null]}`)
	f.Add(`"\ud800"`)
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) {
			return
		}
		pytext.Repr(json.RawMessage(raw))
		require.True(t, json.Valid([]byte(pytext.Dumps(json.RawMessage(raw)))), raw)
	})
}
