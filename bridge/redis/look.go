package redis

import (
	"context"
	"errors"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"understudy/bridge"
	"understudy/id"
)

// position is where a stream is, as returned by look.
type position struct {
	last, born bridge.Offset
	count      int64
	lost       gaps
	lostOf     map[id.Run]gaps
}

// gaps are the highest offsets that were dropped.
type gaps struct{ tokens, records bridge.Offset }

func (g gaps) above(o bridge.Offset) bridge.Gap {
	switch {
	case g.records.Compare(o) > 0:
		return bridge.RecordGap
	case g.tokens.Compare(o) > 0:
		return bridge.TokenGap
	}
	return bridge.NoGap
}

// page is how many entries of a replay are read at once.
const page = 256

// look returns the position of a stream and its first entries above an offset (none for nil), both at the same moment.
func (r *reader) look(ctx context.Context, t id.Thread, after *bridge.Offset) (at position, first []goredis.XMessage, err error) {
	for range 2 {
		pipe := r.b.client.TxPipeline()
		answer := lookScript.EvalSha(ctx, pipe, r.b.keys(t), r.b.times()...)
		var entries *goredis.XMessageSliceCmd
		if after != nil {
			entries = pipe.XRangeN(ctx, r.b.keys(t)[0], "("+after.String(), "+", page)
		}
		_, err = pipe.Exec(ctx)
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			if err = r.b.loadScripts(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return at, nil, err
		}
		if entries != nil {
			first = entries.Val()
		}
		at, err = readPosition(answer)
		return at, first, err
	}
	return at, nil, errors.New("redis does not keep scripts")
}

func readPosition(c *goredis.Cmd) (at position, err error) {
	answer, err := c.Slice()
	if err != nil || len(answer) != 6 {
		return at, errors.Join(errEntry, err)
	}
	text := func(v any) string { s, _ := v.(string); return s }
	offset := func(v any) (o bridge.Offset) {
		if err == nil {
			o, err = parseOffset(text(v))
		}
		return o
	}
	at.last, at.born = offset(answer[0]), offset(answer[1])
	at.count, _ = answer[2].(int64)
	at.lost = gaps{offset(answer[3]), offset(answer[4])}
	of, _ := answer[5].([]any)
	at.lostOf = make(map[id.Run]gaps)
	for pair := range slices.Chunk(of, 2) {
		name := text(pair[0])
		if len(pair) != 2 || len(name) < 2 {
			return at, errEntry
		}
		run := id.Run(name[:len(name)-2])
		g := at.lostOf[run]
		switch {
		case strings.HasSuffix(name, ":t"):
			g.tokens = offset(pair[1])
		case strings.HasSuffix(name, ":r"):
			g.records = offset(pair[1])
		}
		at.lostOf[run] = g
	}
	return at, err
}
