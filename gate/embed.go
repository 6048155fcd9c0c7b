package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	a, _, err := g.ask(ctx, "embed", func(b []byte, _ *process) []byte {
		b = append(b, `,"texts":[`...)
		for i, text := range texts {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonobj.AppendText(b, text)
		}
		return append(b, ']')
	})
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
