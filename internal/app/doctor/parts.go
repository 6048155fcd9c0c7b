package doctor

import (
	"context"
	"fmt"
	"strings"

	"understudy/gate"
	"understudy/graph/python"
	"understudy/internal/app/graphs"
	"understudy/internal/config"
)

// parts loads the Python parts that are not graphs, as a server does.
func (d *doctor) parts(ctx context.Context, cfg *config.Config) {
	opts := graphs.GateOptions(cfg)
	if cfg.Encrypts() {
		opts.Encryption = graphs.EncryptionOptions(cfg).Encryption
	}
	if opts.None() {
		return
	}
	done := d.slow("importing the handlers, the application and the embedding, each", d.Import)
	defer done()
	_ = gate.Check(ctx, opts, d.Import, func(c gate.Checked) { // the error is the end of ctx
		check, _, _ := strings.Cut(c.Part, ".")
		wrong := func(what string, e *gate.StartError) {
			text := fmt.Sprintf("%s (%s) %s: %s", c.Part, c.Spec, what, e.Reason)
			if e.Place != "" {
				text += " at " + e.Place
			}
			d.say(check, Problem, text, e.Fix, python.Excerpt(e.Trace, 6, cfg.CodeDirs())...)
		}
		switch i := cfg.StoreIndex; {
		case c.Problem != nil:
			wrong("does not import, and the server does not start", c.Problem)
		case check != "store":
			d.say(check, Fine, fmt.Sprintf("%s imports %s, in %.1f s", c.Part, c.Spec, c.Took.Seconds()), "")
		case c.Failed != nil:
			wrong("does not embed a word", c.Failed)
		case c.Dims != i.Dims:
			d.say(check, Problem, fmt.Sprintf("%s (%s) returns %d dimensions, and dims of store.index is %d", c.Part, c.Spec, c.Dims, i.Dims), fmt.Sprintf("set dims to %d", c.Dims))
		default:
			d.say(check, Fine, fmt.Sprintf("%s imports %s, in %.1f s; semantic search has %d dimensions", c.Part, c.Spec, c.Took.Seconds(), i.Dims), "")
		}
	})
}
