package encryption_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]encryption.Context{
		`{}`: "", ` { "b" : 1.50 , "a" : { "d" : null , "c" : [ ] } } `: `{"a":{"c":[],"d":null},"b":1.50}`, `{"n":12345678901234567890}`: `{"n":12345678901234567890}`,
	} {
		c, err := encryption.Parse([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, c)
		again, err := encryption.Parse(c.Object())
		require.NoError(t, err)
		require.Equal(t, c, again)
	}
	for _, text := range []string{``, `[]`, `"a"`, `null`, `{}{}`, `{"a":}`, `{"a":1} x`} {
		_, err := encryption.ParseHeader(base64.StdEncoding.EncodeToString([]byte(text)))
		if text == "" {
			require.NoError(t, err)
			continue
		}
		require.True(t, fault.Is(err, fault.Unprocessable), text)
	}
}

// The context of a run is in its configuration, and clients neither see nor set it.
func TestRunsCarryTheirContext(t *testing.T) {
	configurable := jsonobj.Of(json.RawMessage(`{"a":1,"__encryption_context__":{"tenant":"forged"}}`))
	encryption.Write(configurable, "")
	require.JSONEq(t, `{"a":1}`, string(configurable.JSON()))
	encryption.Write(configurable, `{"tenant":"a"}`)
	config := jsonobj.Of(json.RawMessage(`{"tags":[]}`))
	config.Set("configurable", configurable.JSON())
	require.Equal(t, encryption.Context(`{"tenant":"a"}`), encryption.OfRun(config.JSON()))
	require.JSONEq(t, `{"tags":[],"configurable":{"a":1}}`, string(encryption.Hide(config.JSON())))
	require.JSONEq(t, `{"config":{"tags":[],"configurable":{"a":1}}}`, string(encryption.Hide(json.RawMessage(`{"config":`+string(config.JSON())+`}`), "config")))
	for _, odd := range []string{``, `null`, `{"__encryption_context__":1}`, `{"configurable":{"__encryption_context__":1}}`, `{"configurable":"__encryption_context__"}`} {
		require.Equal(t, encryption.Context(""), encryption.OfRun(json.RawMessage(odd)))
		require.NotPanics(t, func() { encryption.Hide(json.RawMessage(odd)) })
	}
}
