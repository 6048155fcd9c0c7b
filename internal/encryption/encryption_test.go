package encryption_test

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"strings"
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

// Whatever clients send, a context that is accepted is accepted again from its own form, which is what data keys and runs are stored with.
func TestContextsKeepTheirForm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{`<`, `>&`, "\xff", "\u2028", `\u2029`, `\ud800`, `\u0000`, `\n`, `\b`, "\x7f", `😀`, `\"`, `\/`, `x`}
	text := func() string {
		var b strings.Builder
		part := parts[random.IntN(len(parts))]
		for n := random.IntN(4200) >> random.IntN(13); n > 0; n-- {
			b.WriteString(part)
		}
		return `"` + b.String() + `"`
	}
	numbers := []string{`-0`, `1e999999`, `1.50`, `123456789012345678901234567890`, `true`, `null`}
	accepted, refused := 0, 0
	for range 5000 {
		value := text()
		switch random.IntN(3) {
		case 0:
			n := random.IntN(2000) >> random.IntN(8)
			value = strings.Repeat(`[`, n) + value + strings.Repeat(`]`, n)
		case 1:
			value = numbers[random.IntN(len(numbers))]
		}
		c, err := encryption.ParseHeader(base64.StdEncoding.EncodeToString([]byte(`{` + text() + `:` + value + `}`)))
		if err != nil {
			require.True(t, fault.Is(err, fault.Unprocessable), err)
			refused++
			continue
		}
		accepted++
		for _, parse := range []func([]byte) (encryption.Context, error){encryption.Parse, encryption.Restore} {
			again, err := parse(c.Object())
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
		configurable := jsonobj.Of(nil)
		encryption.Write(configurable, c)
		require.Equal(t, c, encryption.OfRun(json.RawMessage(`{"configurable":`+string(configurable.JSON())+`}`)))
	}
	require.Greater(t, accepted, 500)
	require.Greater(t, refused, 500)
	_, err := encryption.Parse([]byte(`{"a":` + strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000) + `}`))
	require.ErrorContains(t, err, "nested deeper")
}

// What is stored stays readable, whatever is accepted today.
func TestRestoreHasNoBounds(t *testing.T) {
	for _, text := range []string{`{"a":"` + strings.Repeat(`\u003c`, 5000) + `"}`, `{"a":` + strings.Repeat(`[`, 1500) + strings.Repeat(`]`, 1500) + `}`} {
		_, err := encryption.Parse([]byte(text))
		require.Error(t, err)
		_, err = encryption.Restore([]byte(text))
		require.NoError(t, err)
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
