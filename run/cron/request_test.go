package cron

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// strictWire refuses what clients cannot send.
type strictWire struct{ run.Wire }

func (strictWire) Request(payload json.RawMessage, _ bool) (run.Request, error) {
	p := gjson.ParseBytes(payload)
	if len(p.Get("context").Map()) > 0 && len(p.Get("config.configurable").Map()) > 0 {
		return run.Request{}, fault.New(fault.Invalid, "both")
	}
	req := run.Request{}
	req.Config, req.Context = json.RawMessage(p.Get("config").Raw), json.RawMessage(p.Get("context").Raw)
	return req, nil
}

// Crons and scheduled tasks make runs with what they were sent, a context too, and act as who made them, in the encryption context of then: what the server has written
// into their configuration is not taken for the client's.
func TestRequestOfACron(t *testing.T) {
	t.Parallel()
	s := &Crons{Options: Options{Wire: strictWire{}}}
	const in = encryption.Context(`{"tenant":"t"}`)
	signed := func(payload string) json.RawMessage {
		o := jsonobj.Of(json.RawMessage(payload))
		config := jsonobj.Of(o.Get("config"))
		configurable := jsonobj.Of(config.Get("configurable"))
		access.Write(configurable, &access.Actor{Identity: "ann", User: json.RawMessage(`{}`)})
		config.Set("configurable", configurable.JSON())
		o.Set("config", config.JSON())
		return o.JSON()
	}
	for name, c := range map[string]*run.Cron{
		"cron with a context":         {ID: "c", Payload: withCronID(jsonobj.Of(signed(`{"context":{"a":1}}`)), "c", in)},
		"cron with a configuration":   {ID: "c", Payload: withCronID(jsonobj.Of(signed(`{"config":{"configurable":{"a":1}}}`)), "c", in)},
		"cron with neither":           {ID: "c", Payload: withCronID(jsonobj.Of(signed(`{}`)), "c", in)},
		"task, which has a context":   {ID: "c", Account: "ann", Payload: encryptedIn(signed(`{"context":{"a":1},"config":{"recursion_limit":5}}`), in)},
		"task in no encryption":       {ID: "c", Account: "ann", Payload: encryptedIn(json.RawMessage(`{"context":{"a":1}}`), "")},
		"cron without authentication": {ID: "c", Payload: withCronID(jsonobj.Of(json.RawMessage(`{"context":{"a":1}}`)), "c", in)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := s.request(c)
			require.NoError(t, err)
			require.Equal(t, c.Account == "", req.Cron == "c")
			require.Equal(t, encryption.OfRun(jsonobj.Of(c.Payload).Get("config")), req.Encryption)
			sent := gjson.ParseBytes(c.Payload)
			require.Equal(t, sent.Get("context").Raw, string(req.Context))
			require.Equal(t, sent.Get("config.recursion_limit").Raw, gjson.GetBytes(req.Config, "recursion_limit").Raw)
			require.Equal(t, sent.Get("config.configurable.a").Raw, gjson.GetBytes(req.Config, "configurable.a").Raw)
		})
	}
}
