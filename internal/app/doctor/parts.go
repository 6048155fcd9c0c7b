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
		if c.Problem == nil {
			text := fmt.Sprintf("%s imports %s, in %.1f s", c.Part, c.Spec, c.Took.Seconds())
			if i := cfg.StoreIndex; check == "store" {
				text += fmt.Sprintf("; semantic search has %d dimensions", i.Dims)
			}
			d.say(check, Fine, text, "")
			return
		}
		text := fmt.Sprintf("%s (%s) does not import, and the server does not start: %s", c.Part, c.Spec, c.Problem.Reason)
		if c.Problem.Place != "" {
			text += " at " + c.Problem.Place
		}
		d.say(check, Problem, text, c.Problem.Fix, python.Excerpt(c.Problem.Trace, 6, dirs(cfg))...)
	})
}
