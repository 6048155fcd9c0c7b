package deerflow

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/settings"
)

func TestAmounts(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]*settings.Amount{
		`{}`:                                     nil,
		`{"keep":null}`:                          nil,
		`{"keep":{"type":"messages","value":2}}`: {Type: "messages", Value: 2},
		`{"keep":{"type":"tokens","value":1000}}`:      {Type: "tokens", Value: 1000},
		`{"keep":{"type":"fraction","value":0.25}}`:    {Type: "fraction", Value: 0.25},
		`{"keep":{"type":"fraction","value":1}}`:       {Type: "fraction", Value: 1},
		`{"keep":{"type":"messages","value":1e9}}`:     {Type: "messages", Value: 1e9},
		`{"keep":{"value":2,"type":"messages","x":1}}`: {Type: "messages", Value: 2},
	} {
		f, err := Body([]byte(body))
		require.NoError(t, err)
		require.Equal(t, want, f.Amount("keep"), body)
		require.NoError(t, f.Err(), body)
	}
	for _, body := range []string{
		`{"keep":3}`, `{"keep":{}}`, `{"keep":{"type":"messages"}}`, `{"keep":{"type":"words","value":1}}`, `{"keep":{"type":"messages","value":"2"}}`,
		`{"keep":{"type":"messages","value":0}}`, `{"keep":{"type":"messages","value":1.5}}`, `{"keep":{"type":"tokens","value":1e300}}`, `{"keep":{"type":"fraction","value":0}}`,
		`{"keep":{"type":"fraction","value":1.1}}`, `{"keep":{"type":"fraction","value":-1}}`,
	} {
		f, err := Body([]byte(body))
		require.NoError(t, err)
		f.Amount("keep")
		require.Error(t, f.Err(), body)
	}
}
