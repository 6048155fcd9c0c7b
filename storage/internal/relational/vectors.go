package relational

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/graph"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/vectors"
	"understudy/store"
)

var (
	deleteVectors = same("DELETE FROM store_vectors WHERE namespace = $1 AND key = $2")
	// VectorsOf reads the vectors of a model, those of one item together. $2 to $4 as in ItemsBelow.
	vectorsOf = "SELECT v.namespace, v.key, i.updated_at, %s FROM store_vectors v JOIN store_items i ON i.namespace = v.namespace AND i.key = v.key " +
		"WHERE v.model = $1"
	vectorsOfModel = differing(fmt.Sprintf(vectorsOf, "array_send(v.vector)"), fmt.Sprintf(vectorsOf, "v.vector"))
	VectorsOfAll   = vectorsOfModel.Then(same(" ORDER BY v.namespace, v.key"))
	VectorsBelow   = vectorsOfModel.Then(same(" AND v.namespace >= $2 AND v.namespace < $4 AND (v.namespace = $2 OR v.namespace >= $3) ORDER BY v.namespace, v.key"))

	// Two ranges of an index, because no index answers <>.
	unembedded = "SELECT " + itemColumns + ", embedding FROM store_items WHERE embedding %s $1 AND (embedding, namespace, key) > ($2, $3, $4) " +
		"ORDER BY embedding, namespace, key LIMIT $5"
	UnembeddedBefore = same(fmt.Sprintf(unembedded, "<"))
	UnembeddedBehind = same(fmt.Sprintf(unembedded, ">"))
	itemForUpdate    = differing("SELECT "+itemColumns+" FROM store_items WHERE namespace = $1 AND key = $2 FOR UPDATE",
		"SELECT "+itemColumns+" FROM store_items WHERE namespace = $1 AND key = $2")
	setEmbedding = same("UPDATE store_items SET embedding = $3 WHERE namespace = $1 AND key = $2")
)

// putItem writes an item with its embedding.
func (tx *Tx) putItem(namespace string, i *store.Item, now time.Time) error {
	if err := tx.Exec(putItem, putArgs(namespace, i, now)...); err != nil {
		return err
	}
	return tx.replaceVectors(namespace, i)
}

// putArgs are the parameters of putItem.
func putArgs(namespace string, i *store.Item, now time.Time) []any {
	return append(itemArgs(namespace, i), configurationOf(i), micros(now))
}

// configurationOf returns the configuration with which an item is embedded; "": it is not.
func configurationOf(i *store.Item) string {
	if i.Embedding == nil {
		return ""
	}
	return i.Embedding.Configuration
}

func (tx *Tx) replaceVectors(namespace string, i *store.Item) error {
	if err := tx.Exec(deleteVectors, namespace, i.Key); err != nil {
		return err
	}
	tx.VectorsGone(namespace, i.Key)
	if i.Embedding == nil || len(i.Embedding.Vectors) == 0 {
		return nil
	}
	return tx.PutVectors(namespace, i)
}

// Unembedded implements store.Backend.
func (s itemStore) Unembedded(ctx context.Context, configuration string, after *store.Item, limit, size int) ([]*store.Item, error) {
	from3 := []any{"", "", ""}
	behind := false
	if after != nil {
		ns, err := rows.JoinNamespace(after.Namespace)
		if err != nil {
			return nil, err
		}
		from3 = []any{after.Embedding.Configuration, ns, after.Key}
		behind = after.Embedding.Configuration > configuration
	}
	scan := func(r Row) *store.Item {
		i := scanItem(r)
		i.Embedding = &graph.StoreEmbedding{Configuration: r.Text(8)}
		return i
	}
	sizeOf := func(i *store.Item) int { return len(i.Value) }
	return from(ctx, s.db.Snapshot, func(q Querier) (list []*store.Item, err error) {
		if !behind {
			list, err = within(q, size, sizeOf, UnembeddedBefore, scan, append(append([]any{configuration}, from3...), limit)...)
		}
		if err == nil && len(list) == 0 {
			list, err = within(q, size, sizeOf, UnembeddedBehind, scan, append(append([]any{configuration}, from3...), limit)...)
		}
		return list, err
	})
}

// Embed implements store.Backend.
func (s itemStore) Embed(ctx context.Context, list []*store.Item) error {
	list, names, err := sortedItems(list)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, item := range list {
			now, found, err := first(tx, itemForUpdate, scanItem, names[item], item.Key)
			if err != nil {
				return err
			}
			if !found || !bytes.Equal(now.Value, item.Value) || !bytes.Equal(now.Index, item.Index) || !now.UpdatedAt.Equal(item.UpdatedAt) {
				continue
			}
			err = tx.Exec(setEmbedding, names[item], item.Key, item.Embedding.Configuration)
			if err == nil {
				err = tx.replaceVectors(names[item], item)
			}
			if err != nil {
				return fmt.Errorf("embedding of item %q: %w", item.Key, err)
			}
		}
		return nil
	})
}

// errMoved: an item changed after it was ranked.
var errMoved = errors.New("an item was changed while it was searched")

// nearest calls fn for the items below a namespace, in order of their similarity, until it returns ErrStop. reset is called before each
// attempt.
func (s itemStore) nearest(ctx context.Context, search store.Search, prefix string, reset func(), fn func(*store.Item) error) error {
	const attempts = 3
	for n := 1; ; n++ {
		ranking, err := s.db.Rank(ctx, search.Near, prefix)
		if err != nil {
			return err
		}
		reset()
		err = s.db.Scan(ctx, rows.NarrowItems, func(q Querier) error {
			switch {
			case ranking != nil:
			case s.db.Sorted(search.Near, 0).Postgres != "":
				return s.sorted(q, search, prefix, reset, fn)
			default:
				if ranking, err = s.rank(q, search.Near, prefix); err != nil {
					return err
				}
			}
			return s.ranked(q, ranking, expected(search.Limit, search.Offset), n < attempts, fn)
		})
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

// below returns the arguments that select a namespace and those below it, and whether they are needed.
func below(prefix string) ([]any, bool) {
	return []any{prefix, prefix + rows.Separator, prefix + rows.Behind}, prefix != ""
}

// rank compares all vectors that the database has.
func (s itemStore) rank(q Querier, near *store.Near, prefix string) (*vectors.Ranking, error) {
	statement, args := VectorsOfAll, []any{near.Model}
	if more, narrow := below(prefix); narrow {
		statement, args = VectorsBelow, append(args, more...)
	}
	var list []vectors.Candidate
	v := make([]float32, len(near.Vector))
	var namespace, key []byte
	err := q.Query(statement, func(r Row) error {
		if !s.db.Vector(v, r, 3) {
			return fmt.Errorf("item %q has a vector with other dimensions than the model %s", r.Text(1), near.Model)
		}
		score, last := vectors.Dot(v, near.Vector), len(list)-1
		namespace, key = r.Append(namespace[:0], 0), r.Append(key[:0], 1)
		if last >= 0 && list[last].Key == string(key) && list[last].Namespace == string(namespace) {
			list[last].Score = max(list[last].Score, score)
			return nil
		}
		name := ""
		if last >= 0 && list[last].Namespace == string(namespace) {
			name = list[last].Namespace
		} else {
			name = string(namespace)
		}
		list = append(list, vectors.Candidate{Score: score, Updated: r.Int(2), Namespace: name, Key: string(key)})
		return nil
	}, args...)
	return vectors.NewRanking(list), err
}

// ranked reads the items of a ranking. strict returns errMoved for one that has changed since.
func (s itemStore) ranked(q Querier, ranking *vectors.Ranking, expected int, strict bool, fn func(*store.Item) error) error {
	size := 1
	if _, nests := q.(Nesting); !nests { // each query is a round trip
		size = min(max(expected, 16), 256)
	}
	now := micros(s.now())
	for {
		var batch []vectors.Candidate
		for len(batch) < size {
			c, ok := ranking.Next()
			if !ok {
				break
			}
			batch = append(batch, c)
		}
		if len(batch) == 0 {
			return nil
		}
		items := make([]*store.Item, len(batch))
		for n, c := range batch {
			if err := q.Ask(selectItem, func(r Row) error {
				items[n] = scanItem(r)
				return nil
			}, now, c.Namespace, c.Key); err != nil {
				return err
			}
		}
		if err := q.Send(); err != nil {
			return err
		}
		for n, item := range items {
			switch c := &batch[n]; {
			case item == nil: // deleted, or expired
				continue
			case micros(item.UpdatedAt) != c.Updated && strict:
				return errMoved
			default:
				score := vectors.Score(c.Score)
				item.Score = &score
			}
			if err := fn(item); errors.Is(err, ErrStop) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

// Neighbors are how many vectors an index returns at once. They are few, because each is a prepared statement of its own.
var Neighbors = []int{64, 256, 1000}

// sorted lets the database sort. An index returns its nearest vectors, of which a filter may leave too few: then it returns more, and at last all are compared, at once
// where few are below the prefix.
func (s itemStore) sorted(q Querier, search store.Search, prefix string, reset func(), fn func(*store.Item) error) error {
	wanted := expected(search.Limit, search.Offset)
	var tries []int
	if n, _ := slices.BinarySearch(Neighbors, 4*wanted); n < len(Neighbors) && search.Limit > 0 {
		tries = Neighbors[n:]
	}
	narrow := false
	for _, neighbors := range append(slices.Clip(tries), 0) {
		statement := s.db.Sorted(search.Near, neighbors)
		if statement.Postgres == "" || narrow && neighbors > 0 {
			continue
		}
		reset()
		if neighbors > 0 {
			if err := q.Query(neighborsOfIndex, nil, fmt.Sprint(neighbors)); err != nil {
				return err
			}
		}
		lower, upper := prefix, rows.LastText
		if prefix != "" {
			upper = prefix + rows.Behind
		}
		stopped := false
		seen := map[string]bool{}
		err := q.Walk(wanted, statement, func(r Row) error {
			item := scanItem(r)
			name := strings.Join(item.Namespace, rows.Separator)
			at := name + "\x00" + item.Key
			if seen[at] || !rows.Within(name, prefix) { // one of its better texts came before
				return nil
			}
			seen[at] = true
			score, err := strconv.ParseFloat(r.Text(8), 32)
			if err != nil {
				return fmt.Errorf("score of item %q: %w", item.Key, err)
			}
			score = vectors.Score(float32(score))
			item.Score = &score
			err = fn(item)
			stopped = errors.Is(err, ErrStop)
			return err
		}, micros(s.now()), search.Near.Vector, lower, upper)
		if err != nil || stopped {
			return err
		}
		narrow = len(seen) < neighbors/8
	}
	return nil
}

// neighborsOfIndex sets how many vectors an index of pgvector returns, for the transaction.
var neighborsOfIndex = differing("SELECT set_config('hnsw.ef_search', $1, true)", "")
