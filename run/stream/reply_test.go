package stream

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/run"
)

// Each case was observed on LangGraph Server: records of a run, and what wait responded with.
func TestReplies(t *testing.T) {
	t.Parallel()
	const a, b = `{"value":"A?","id":"1","response_schema":null}`, `{"value":"B?","id":"2","response_schema":null}`
	for name, c := range map[string]struct{ records, want string }{
		"values":                               {`values {"n":1};values {"n":2}`, `{"n":2}`},
		"one branch interrupts, another ends":  {`values {"n":1};values {"n":1,"__interrupt__":[` + a + `]};values {"n":2}`, `{"n":1,"__interrupt__":[` + a + `]}`},
		"two interrupt":                        {`values {"n":1,"__interrupt__":[` + a + `]};values {"n":1,"__interrupt__":[` + b + `]}`, `{"__interrupt__":[` + a + `,` + b + `]}`},
		"two in one record":                    {`values {"__interrupt__":[` + a + `,` + b + `],"n":1}`, `{"__interrupt__":[` + a + `,` + b + `],"n":1}`},
		"updates alone":                        {`updates {"__interrupt__":[` + a + `]};updates {"x":{"n":1}}`, `{"__interrupt__":[` + a + `]}`},
		"values and updates show it twice":     {`updates {"__interrupt__":[` + a + `]};values {"n":1,"__interrupt__":[` + a + `]};values {"n":2}`, `{"__interrupt__":[` + a + `,` + a + `]}`},
		"a breakpoint is no interrupt":         {`values {"n":1};updates {"__interrupt__":[]}`, `{"n":1}`},
		"subgraphs do not count":               {`values|x:1 {"__interrupt__":[` + b + `]};updates|x:1 {"__interrupt__":[` + b + `]};values {"n":1,"__interrupt__":[` + a + `]}`, `{"n":1,"__interrupt__":[` + a + `]}`},
		"an error is stronger":                 {`values {"__interrupt__":[` + a + `]};error {"error":"ValueError"}`, `error {"error":"ValueError"}`},
		"an attempt begins anew":               {`metadata {};values {"n":1,"__interrupt__":[` + a + `]};metadata {};values {"n":1,"__interrupt__":[` + a + `]}`, `{"n":1,"__interrupt__":[` + a + `]}`},
		"text that looks like an interrupt":    {`values {"n":"\"__interrupt__\":[1]"}`, `{"n":"\"__interrupt__\":[1]"}`},
		"a nested key that is called the same": {`values {"n":{"__interrupt__":[1]}}`, `{"n":{"__interrupt__":[1]}}`},
	} {
		var r reply
		for _, text := range strings.Split(c.records, ";") {
			event, data, _ := strings.Cut(text, " ")
			r.add(&bridge.Record{Event: event, Data: []byte(data)})
		}
		got, err := (&Followers{forms: &forms{}}).answered(t.Context(), &run.Run{}, &r, overlay.Look{})
		require.NoError(t, err)
		text := string(got.Values)
		if got.Error != nil {
			text = "error " + string(got.Error)
		}
		require.Equal(t, c.want, text, name)
	}
}

// Wherever a reader takes over from the execution, with whatever overlap, the reply is that of all records.
func TestRepliesAreTakenOver(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var records []*bridge.Record
		moved := rnd.IntN(2) == 0 // the stream has them under other offsets
		for i := range rnd.IntN(12) {
			rec := &bridge.Record{Offset: bridge.Offset{MS: 1, N: int64(i + 1)}}
			if moved {
				rec.Attempt, rec.Index = 1, int64(i+1)
			}
			switch rnd.IntN(6) {
			case 0:
				rec.Event, rec.Data = "metadata", []byte(`{}`)
			case 1, 2:
				rec.Event, rec.Data = "values", fmt.Appendf(nil, `{"n":%d}`, i)
			case 3:
				rec.Event, rec.Data = "values", fmt.Appendf(nil, `{"n":%d,"__interrupt__":[{"id":"%d"}]}`, i, i)
			case 4:
				rec.Event, rec.Data = "updates", fmt.Appendf(nil, `{"__interrupt__":[{"id":"%d"}]}`, i)
			case 5:
				rec.Event, rec.Data = "messages", []byte(`[]`)
			}
			records = append(records, rec)
		}
		var whole, part reply
		for _, rec := range records {
			whole.add(rec)
		}
		end := rnd.IntN(len(records) + 1)
		begin := rnd.IntN(end + 1)
		for _, rec := range records[:end] {
			part.add(rec)
		}
		taken := part
		part.add(&bridge.Record{Offset: bridge.Offset{MS: 2}, Event: "values", Data: []byte(`{"n":0,"__interrupt__":[{"id":"x"}]}`)}) // a copy is independent
		for _, rec := range records[begin:] {
			if moved {
				c := *rec
				c.Offset.MS += 1000
				rec = &c
			}
			taken.add(rec)
		}
		require.Equal(t, show(t, &whole), show(t, &taken), "%d to %d of %v", begin, end, records)
	}
}

func show(t *testing.T, r *reply) string {
	t.Helper()
	got, err := (&Followers{forms: &forms{}}).answered(t.Context(), &run.Run{Kwargs: run.Arguments{Arguments: graph.Arguments{Temporary: true}}}, r, overlay.Look{})
	require.NoError(t, err)
	out, err := json.Marshal(got)
	require.NoError(t, err)
	return string(out)
}
