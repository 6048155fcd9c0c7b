package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/graph/python"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// embedTimeout is the least time for a call of embed, which may ask a model elsewhere. The caller may have less.
const embedTimeout = time.Minute

// errNotEmbedded: the process does not answer.
var errNotEmbedded = fault.New(fault.Unavailable, "The function of store.index.embed is not available at the moment, try again")

// Embed returns a vector for each text, by the function or model of store.index.embed. The error is a fault of kind Unavailable when the process does not
// answer, else internal: it is logged with its traceback.
func (g *Gate) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	a, err := g.askEmbed(ctx, texts)
	switch {
	case errors.Is(err, errFull), errors.Is(err, errSlow), errors.Is(err, errDown):
		return nil, errNotEmbedded
	case err != nil:
		return nil, err
	case a.Refusal != nil:
		g.logRefusal(a.Refusal)
		return nil, fault.Wrap(fault.Internal, "embed failed", fmt.Errorf("embed: %s", firstLine(a.Refusal.Log)))
	case len(a.Vectors) != len(texts):
		return nil, fmt.Errorf("embed: %d vectors for %d texts", len(a.Vectors), len(texts))
	}
	return a.Vectors, nil
}

func (g *Gate) askEmbed(ctx context.Context, texts []string) (*answer, error) {
	return g.ask(ctx, "embed", func(b []byte, _ *process) []byte {
		b = append(b, `,"texts":[`...)
		for i, text := range texts {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonobj.AppendText(b, text)
		}
		return append(b, ']')
	})
}

// tryEmbed embeds a word, and returns how many dimensions its vector has, or why there is none.
func (g *Gate) tryEmbed(ctx context.Context, within time.Duration) (int, *StartError) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	key, spec := g.opts.part("embed")
	failed := &StartError{Part: key, Spec: spec, Interpreter: g.opts.Python}
	a, err := g.askEmbed(ctx, []string{"red"})
	switch {
	case ctx.Err() != nil:
		failed.Reason, failed.Fix = fmt.Sprintf("it did not return a vector within %v", within), "look for calls without a timeout in it"
	case err != nil:
		failed.Reason = err.Error()
	case a.Refusal != nil:
		what, trace, _ := strings.Cut(a.Refusal.Log, "\n")
		failed.Reason, failed.Trace, failed.Place = what, trace, g.opts.placeIn(trace)
		if last := lastLine(strings.TrimSpace(trace)); last != "" {
			failed.Reason = last
		}
		if failed.Fix = python.FixFailure(g.opts.Python, trace, g.opts.dirs()...); failed.Fix == "" {
			failed.Fix = "writing and searching items fail until it returns a list of numbers for each text"
		}
	case len(a.Vectors) != 1:
		failed.Reason, failed.Fix = fmt.Sprintf("it returned %d vectors for one text", len(a.Vectors)), "return one list of numbers for each text"
	default:
		return len(a.Vectors[0]), nil
	}
	return 0, failed
}
