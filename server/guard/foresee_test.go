package guard

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/server"
	"understudy/thread"
)

// doorman refuses who sends a request after it has asked what that is going to ask.
type doorman struct{ answers }

func (d *doorman) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	return nil, &access.Refusal{Status: http.StatusUnauthorized, Detail: json.RawMessage(`"Who are you?"`)}
}

func (d *doorman) Admit(ctx context.Context, r *access.Request, foresee func() []access.Expected) (*access.Actor, []access.Answer, error) {
	for _, q := range foresee() {
		d.asked = append(d.asked, q.Resource+"."+q.Action)
	}
	_, err := d.Authenticate(ctx, r)
	return nil, nil, err
}

// looked counts what is read of a database, which finds nothing, or hangs.
type looked struct {
	server.Assistants
	hangs bool
	reads int
}

func (l *looked) look(ctx context.Context) error {
	l.reads++
	if l.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return fault.New(fault.NotFound, "there is none")
}

func (l *looked) Get(ctx context.Context, a id.Assistant) (*assistant.Assistant, error) {
	if err := l.look(ctx); err != nil && l.hangs {
		return nil, err
	}
	return &assistant.Assistant{ID: a, GraphID: "talk"}, nil
}

func (l *looked) Thread(ctx context.Context, _ id.Thread) (*thread.Thread, error) {
	return nil, l.look(ctx)
}

// Who is not known yet makes the server read one row at most, and wait for it a moment at most.
func TestStrangersReadLittle(t *testing.T) {
	t.Parallel()
	const some = "019ad0e2-0000-7000-8000-00000000000"
	many := func(each string) string { return "[" + strings.Join([]string{each, each, each, each}, ",") + "]" }
	private, system := `{"assistant_id":"`+some+`1"}`, `{"assistant_id":"`+string(id.DefaultAssistant("talk"))+`"}`
	for name, c := range map[string]struct {
		path, body string
		reads      int
		asked      int // questions when the database answers
	}{
		"runs of private assistants": {"/runs/batch", many(private), 1, 2},
		"runs of system assistants":  {"/runs/batch", many(system), 1, 1},
		"runs of graphs":             {"/runs/batch", many(`{"assistant_id":"talk"}`), 0, 4},
		"a run":                      {"/runs/wait", private, 1, 2},
		"a cron":                     {"/threads/" + some + "1/runs/crons", `{"assistant_id":"` + some + `1","schedule":"0 0 1 1 *"}`, 1, 2},
		"a command":                  {"/threads/" + some + "1/commands", `{"id":1,"method":"input.inject","params":{"namespace":[],"message":{"role":"user","content":"x"}}}`, 1, 2},
	} {
		for _, hangs := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", of a database that hangs"}[hangs], func(t *testing.T) {
				t.Parallel()
				d, l := &doorman{}, &looked{hangs: hangs}
				o := server.Options{Assistants: l, Authenticator: d}
				(&Guard{Policy: d, Rows: l}).Wrap(&o)
				s := server.New(o)
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				ended := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { ended <- s.Serve(ctx, ln) }()
				began := time.Now()
				res, err := http.Post("http://"+ln.Addr().String()+c.path, "application/json", strings.NewReader(c.body))
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusUnauthorized, res.StatusCode)
				require.Less(t, time.Since(began), 20*time.Second)
				cancel()
				require.NoError(t, <-ended)
				require.Equal(t, c.reads, l.reads)
				if hangs && c.reads > 0 {
					require.Empty(t, d.asked, "what could not be read is not known")
				} else {
					require.Len(t, d.asked, c.asked)
				}
			})
		}
	}
}
