package gate

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Checked is what Check found out about one part.
type Checked struct {
	Part, Spec string // the key of langgraph.json, and what it names
	Took       time.Duration
	Problem    *StartError // nil: it loads
	// Dims is of store.index.embed how many dimensions its vector of one word has; Failed is why it returned none, like Problem.
	Dims   int
	Failed *StartError
}

// Check loads each part of o as a server does, in a process of its own that ends afterwards, and calls found after each. It calls store.index.embed once. A part that does not load within this time is a problem.
// The application is not started (its lifespan): only a server has use for what that opens. The error is that of ctx.
func Check(ctx context.Context, o Options, within time.Duration, found func(Checked)) error {
	o.Remember, o.Registry, o.API, o.unstarted = Remembering{}, nil, nil, true
	for _, name := range partNames {
		key, spec := o.part(name)
		if spec == "" {
			continue
		}
		one := o
		one.Auth, one.App, one.Embed, one.Encryption, one.Tools = "", "", "", "", nil
		switch name {
		case "auth":
			one.Auth = o.Auth
		case "app":
			one.App = o.App
		case "embed":
			one.Embed = o.Embed
		case "encryption":
			one.Encryption = o.Encryption
		case "tools":
			one.Tools = o.Tools
		}
		g := New(one)
		g.startWithin = within
		began := time.Now()
		a, err := startAlone(ctx, g)
		c := Checked{Part: key, Spec: spec, Took: time.Since(began)}
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = a.Close()
			}
			return context.Cause(ctx)
		case err == nil:
			if name == "embed" {
				c.Dims, c.Failed = g.tryEmbed(ctx, within)
			}
			if _ = a.Close(); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		case errors.As(err, &c.Problem):
			if c.Problem.Part == "" { // the process ended without a word
				c.Problem.Fix = cmp.Or(c.Problem.Fix, "look for os._exit in it, and import it alone to see where it ends")
				c.Problem.Part, c.Problem.Spec = key, spec
			}
		default:
			c.Problem = &StartError{Part: key, Spec: spec, Reason: err.Error(), Interpreter: o.Python}
		}
		found(c)
	}
	return nil
}
