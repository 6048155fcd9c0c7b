package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Embedder computes vectors of texts.
type Embedder interface {
	// Embed returns a vector for each text, in order. Vectors of similar texts have similar directions; their lengths do not matter.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

const (
	// callTexts and callBytes bound the texts of one call, unless a single text has more.
	callTexts, callBytes = 128, 256 << 10
	// callTime bounds a call.
	callTime = time.Minute
	// callsAtOnce bounds the calls of all requests together.
	callsAtOnce = 4
)

// batcher lets requests that arrive while others are being embedded share the next call: models take many texts about as fast as one.
// It has no goroutine of its own. A request that gets a slot makes the call for all that wait.
type batcher struct {
	embedder Embedder
	slots    chan struct{}

	mu      sync.Mutex
	waiting []*embedRequest
}

type embedRequest struct {
	texts []string
	// done is closed with the result. err errAlone: the call that it shared failed, maybe because of another's texts.
	done    chan struct{}
	vectors [][]float32
	err     error
}

var errAlone = errors.New("embed alone")

func newBatcher(e Embedder) *batcher {
	return &batcher{embedder: e, slots: make(chan struct{}, callsAtOnce)}
}

// Embed implements Embedder.
func (b *batcher) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	r := &embedRequest{texts: texts, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	for slots := b.slots; ; {
		select {
		case <-r.done:
			if errors.Is(r.err, errAlone) {
				return b.alone(ctx, texts)
			}
			return r.vectors, r.err
		case <-ctx.Done():
			b.leave(r)
			return nil, context.Cause(ctx)
		case slots <- struct{}{}:
			batch := b.take()
			b.call(ctx, batch)
			<-b.slots
			if len(batch) == 0 { // another call has the request, and there is always a free slot
				slots = nil
			}
		}
	}
}

// leave removes a request that no call waits for, unless a call has it.
func (b *batcher) leave(r *embedRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == r {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return
		}
	}
}

// take returns the requests of the next call, the oldest first.
func (b *batcher) take() []*embedRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	count, size, n := 0, 0, 0
	for ; n < len(b.waiting); n++ {
		more := 0
		for _, text := range b.waiting[n].texts {
			more += len(text)
		}
		if n > 0 && (count+len(b.waiting[n].texts) > callTexts || size+more > callBytes) {
			break
		}
		count, size = count+len(b.waiting[n].texts), size+more
	}
	batch := append([]*embedRequest(nil), b.waiting[:n]...)
	b.waiting = append([]*embedRequest(nil), b.waiting[n:]...)
	return batch
}

// call embeds the texts of requests. It continues when the caller's context ends, because others wait for it.
func (b *batcher) call(ctx context.Context, batch []*embedRequest) {
	if len(batch) == 0 {
		return
	}
	var all []string
	for _, r := range batch {
		all = append(all, r.texts...)
	}
	vectors, err := b.inParts(context.WithoutCancel(ctx), all)
	for _, r := range batch {
		switch {
		case err == nil:
			r.vectors, vectors = vectors[:len(r.texts):len(r.texts)], vectors[len(r.texts):]
		case len(batch) > 1 && !errors.Is(err, context.DeadlineExceeded):
			r.err = errAlone
		default:
			r.err = err
		}
		close(r.done)
	}
}

// alone embeds the texts of one request.
func (b *batcher) alone(ctx context.Context, texts []string) ([][]float32, error) {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-b.slots }()
	return b.inParts(ctx, texts)
}

// inParts makes as many calls as texts need. Each different text is embedded once.
func (b *batcher) inParts(ctx context.Context, texts []string) ([][]float32, error) {
	at := make(map[string]int, len(texts))
	var distinct []string
	for _, text := range texts {
		if _, known := at[text]; !known {
			at[text] = len(distinct)
			distinct = append(distinct, text)
		}
	}
	vectors := make([][]float32, 0, len(distinct))
	for len(vectors) < len(distinct) {
		left := distinct[len(vectors):]
		n, size := 0, 0
		for n < len(left) && n < callTexts && (n == 0 || size+len(left[n]) <= callBytes) {
			size += len(left[n])
			n++
		}
		limited, cancel := context.WithTimeout(ctx, callTime)
		part, err := b.embedder.Embed(limited, left[:n])
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer in %s; understudy doctor --models shows whether the model answers: %w", callTime, err)
		}
		cancel()
		if err != nil {
			return nil, err
		}
		if len(part) != n {
			return nil, fmt.Errorf("the embedding of store.index returned %d vectors for %d texts; it must return one for each", len(part), n)
		}
		vectors = append(vectors, part...)
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = vectors[at[text]]
	}
	return out, nil
}
