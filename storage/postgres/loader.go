package postgres

import (
	"fmt"
	"slices"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/jsonplus"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

// loader adds values and writes to tuples of one thread. Values, and parts of lists, that several
// checkpoints share are loaded once, and for many tuples in one query.
type loader struct {
	q      querier
	thread id.Thread
	blobs  map[blobKey]*checkpointer.Blob // a nil entry: no such row

	lists map[blobKey]*list // those of them whose items are not loaded

	owner int64             // of the thread's parts; 0: not read yet
	parts map[uint32][]byte // by number

	bounded bool
	room    int              // bytes that tuples after the first may still add, if bounded
	counted map[blobKey]bool // in room, or of the first
	cut     map[blobKey]bool // too large to load
}

// blobKey identifies a channel value of the thread.
type blobKey struct {
	ns string
	rows.ChannelVersion
}

// newLoader returns a loader that reads with q.
func newLoader(q querier, t id.Thread) *loader {
	return &loader{
		q: q, thread: t, blobs: map[blobKey]*checkpointer.Blob{}, lists: map[blobKey]*list{}, parts: map[uint32][]byte{},
		counted: map[blobKey]bool{}, cut: map[blobKey]bool{},
	}
}

const (
	selectBlobs = "SELECT b.checkpoint_ns, b.channel, b.version, b.type, b.blob FROM unnest($2::text[], $3::text[], $4::text[]) AS w (ns, channel, version) " +
		"JOIN checkpoint_blobs b ON b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version"
	writeColumns = "w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.channel, coalesce(w.type, '') AS type, w.blob, w.task_path"
	selectWrites = "SELECT " + writeColumns + " " +
		"FROM unnest($2::text[], $3::text[]) AS k (ns, id) JOIN checkpoint_writes w ON w.thread_id = $1 AND w.checkpoint_ns = k.ns AND w.checkpoint_id = k.id " +
		"ORDER BY w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx"

	// Of the first $5 values, or checkpoints, everything is given; of the others as much as has $6
	// bytes, or $5, in that order. The length of a value is known without reading it. Lists are
	// short: their parts are other rows.
	someBlobs = "SELECT checkpoint_ns, channel, version, type, CASE WHEN NOT cut THEN blob END, cut FROM (" +
		"SELECT b.*, w.n > $5 AND b.type <> 'list' AND coalesce(sum(octet_length(b.blob)) FILTER (WHERE w.n > $5 AND b.type <> 'list') OVER (ORDER BY w.n), 0) > $6 AS cut " +
		"FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS w (ns, channel, version, n) " +
		"JOIN checkpoint_blobs b ON b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version) AS b"
	someWrites = "SELECT checkpoint_ns, checkpoint_id, task_id, idx, channel, type, CASE WHEN NOT cut THEN blob END, task_path, cut FROM (" +
		"SELECT " + writeColumns + ", k.n, k.n > $4 AND coalesce(sum(octet_length(w.blob)) FILTER (WHERE k.n > $4) OVER (ORDER BY k.n), 0) > $5 AS cut " +
		"FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS k (ns, id, n) " +
		"JOIN checkpoint_writes w ON w.thread_id = $1 AND w.checkpoint_ns = k.ns AND w.checkpoint_id = k.id) AS w ORDER BY n, task_id, idx"
)

// fill loads the values and writes of tuples.
func (l *loader) fill(bytes int, tuples []*checkpointer.Tuple) error {
	l.bounded, l.room = bytes > 0, bytes
	tuples = present(tuples)
	for first := true; len(tuples) > 0; first = false {
		n := min(len(tuples), fillSize)
		filled, err := l.fillSome(tuples[:n], first)
		if err != nil {
			return err
		}
		if filled < n {
			checkpointer.Leave(tuples[filled:]...)
			return nil
		}
		tuples = tuples[n:]
	}
	return nil
}

// present returns the tuples before the first that is Left.
func present(tuples []*checkpointer.Tuple) []*checkpointer.Tuple {
	if n := slices.IndexFunc(tuples, func(t *checkpointer.Tuple) bool { return t.Left }); n >= 0 {
		return tuples[:n]
	}
	return tuples
}

// fillSome fills tuples at once, and returns how many did fit. The first of all fits.
func (l *loader) fillSome(tuples []*checkpointer.Tuple, first bool) (int, error) {
	keys := make([][]blobKey, len(tuples))
	var wanted []blobKey
	for i, t := range tuples {
		versions, err := rows.ChannelVersions(t.Data)
		if err != nil {
			return 0, fmt.Errorf("checkpoint %s: %w", t.ID, err)
		}
		for _, v := range versions {
			keys[i] = append(keys[i], blobKey{t.NS, v})
		}
		wanted = append(wanted, keys[i]...)
	}
	exempt, exemptKeys := 0, 0 // of the bound
	if first {
		exempt, exemptKeys = 1, len(keys[0])
	}
	fitting := l.askWrites(tuples, exempt)
	lists, err := l.load(wanted, exemptKeys)
	if err != nil {
		return 0, err
	}
	n, err := l.fit(tuples[:*fitting], keys, exempt)
	if err != nil {
		return 0, err
	}
	for _, v := range lists {
		if !v.fits {
			continue
		}
		if err := l.restore(v); err != nil {
			return 0, err
		}
	}
	for i, t := range tuples[:n] {
		t.Blobs = make([]checkpointer.Blob, 0, len(keys[i]))
		for _, k := range keys[i] {
			if b := l.blobs[k]; b != nil {
				t.Blobs = append(t.Blobs, *b)
			}
		}
	}
	return n, nil
}

// fillParts loads the picked values, and the writes of a tuple.
func (l *loader) fillParts(t *checkpointer.Tuple, picks []checkpointer.Pick) error {
	versions, err := rows.ChannelVersions(t.Data)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", t.ID, err)
	}
	var wanted []blobKey
	for _, v := range versions {
		if whole, items := checkpointer.Picked(picks, v.Channel); whole || items != nil {
			wanted = append(wanted, blobKey{t.NS, v})
		}
	}
	l.askWrites([]*checkpointer.Tuple{t}, 0)
	lists, err := l.load(wanted, 0)
	if err != nil {
		return err
	}
	for _, v := range lists {
		whole, items := checkpointer.Picked(picks, v.key.Channel)
		if whole {
			if _, err := l.fetch(v.runs); err != nil {
				return err
			}
			if err := l.restore(v); err != nil {
				return err
			}
			continue
		}
		some, err := v.value.Pick(v.runs, relational.Positions(items, v.value.Items), func(runs []compact.Run) error {
			_, err := l.fetch(runs)
			return err
		}, func(n uint32) []byte { return l.parts[n] })
		if err != nil {
			return v.wrong(err)
		}
		v.blob.Type, v.blob.Data, v.blob.Some, v.blob.Length = jsonplus.TypeMsgpack, nil, some, v.value.Items
	}
	for _, k := range wanted {
		if b := l.blobs[k]; b != nil {
			t.Blobs = append(t.Blobs, *b)
		}
	}
	return nil
}

// fit loads the parts of lists, and returns how many tuples fit.
func (l *loader) fit(tuples []*checkpointer.Tuple, keys [][]blobKey, exempt int) (int, error) {
	var parts []compact.Run
	free, pending := 0, 0 // bytes of these parts: of exempt tuples, and at most of the others
	flush := func() error {
		loaded, err := l.fetch(parts)
		l.room -= max(0, loaded-free)
		parts, free, pending = nil, 0, 0
		return err
	}
	for i, t := range tuples {
		if i < exempt {
			free = l.missing(keys[i])
		} else if l.bounded {
			own, ok := l.own(t, keys[i])
			more := l.missing(keys[i])
			if ok && own+pending+more > l.room && parts != nil {
				// Parts that were not loaded yet were counted for each list that has them.
				if err := flush(); err != nil {
					return 0, err
				}
				more = l.missing(keys[i])
			}
			if !ok || own+pending+more > l.room {
				return i, flush()
			}
			l.room -= own
			pending += more
		}
		for _, k := range keys[i] {
			l.counted[k] = true
			if v := l.lists[k]; v != nil && !v.fits {
				v.fits = true
				parts = append(parts, v.runs...)
			}
		}
	}
	return len(tuples), flush()
}

// own returns how many bytes a tuple adds to what was counted, parts of lists excluded, and
// whether they were loaded.
func (l *loader) own(t *checkpointer.Tuple, keys []blobKey) (n int, ok bool) {
	n = len(t.Data) + len(t.Metadata) + len(t.Tasks)
	for i := range t.Writes {
		n += len(t.Writes[i].Data)
	}
	for _, k := range keys {
		if l.cut[k] {
			return 0, false
		}
		if b := l.blobs[k]; b != nil && !l.counted[k] {
			n += len(b.Data)
		}
	}
	return n, true
}

// missing returns the bytes of those parts of a tuple's lists that were not loaded.
func (l *loader) missing(keys []blobKey) (n int) {
	for _, k := range keys {
		v := l.lists[k]
		if v == nil || l.counted[k] {
			continue
		}
		lacks := v.value.Size - len(v.value.Tail)
		for _, r := range v.runs {
			for i := range r.Count {
				lacks -= len(l.parts[r.First+i])
			}
		}
		n += max(0, lacks)
	}
	return n
}

// askWrites asks for the writes on checkpoints of the thread, with the query that is sent next.
// Then fitting is how many checkpoints they were loaded of.
func (l *loader) askWrites(tuples []*checkpointer.Tuple, exempt int) (fitting *int) {
	type key struct{ ns, id string }
	of := map[key]int{}
	var spaces, ids []string
	for i, t := range tuples {
		of[key{t.NS, string(t.ID)}] = i
		spaces, ids = append(spaces, t.NS), append(ids, string(t.ID))
	}
	n := len(tuples)
	add := func(r *row) error {
		if i, ok := of[key{r.Text(0), r.Text(1)}]; ok {
			tuples[i].Writes = append(tuples[i].Writes, scanWrite(r))
		}
		return nil
	}
	if !l.bounded {
		l.q.ask(selectWrites, add, l.thread, spaces, ids)
		return &n
	}
	l.q.ask(someWrites, func(r *row) error {
		if r.Bool(8) {
			n = min(n, of[key{r.Text(0), r.Text(1)}])
			return nil
		}
		return add(r)
	}, l.thread, spaces, ids, exempt, l.room)
	return &n
}

// scanWrite reads a row of writeColumns.
func scanWrite(r *row) checkpointer.Write {
	return checkpointer.Write{TaskID: r.Text(2), Index: int(r.Int(3)), Channel: r.Text(4), Type: r.Text(5), Data: r.Bytes(6), Path: r.Text(7)}
}

// blob returns a channel value, or nil if there is none.
func (l *loader) blob(k blobKey) (*checkpointer.Blob, error) {
	lists, err := l.load([]blobKey{k}, 0)
	if err != nil {
		return nil, err
	}
	for _, v := range lists {
		if _, err := l.fetch(v.runs); err != nil {
			return nil, err
		}
		if err := l.restore(v); err != nil {
			return nil, err
		}
	}
	return l.blobs[k], nil
}

// list is a blob that is stored by its parts.
type list struct {
	key   blobKey
	blob  *checkpointer.Blob
	value compact.Value
	runs  []compact.Run // its parts in order, those that its chunks name included
	fits  bool          // they are loaded, or about to be
}

// load loads values that are not loaded yet, and sends queued queries.
func (l *loader) load(wanted []blobKey, exempt int) (lists []*list, err error) {
	var spaces, channels, versions []string
	newExempt := 0
	for i, k := range wanted {
		if _, known := l.blobs[k]; !known {
			l.blobs[k] = nil
			spaces, channels, versions = append(spaces, k.ns), append(channels, k.Channel), append(versions, k.Version)
			if i < exempt {
				newExempt++
			}
		}
	}
	add := func(r *row) error {
		b := &checkpointer.Blob{Channel: r.Text(1), Version: r.Text(2), Type: r.Text(3), Data: r.Bytes(4)}
		k := blobKey{r.Text(0), rows.ChannelVersion{Channel: b.Channel, Version: b.Version}}
		l.blobs[k] = b
		if b.Type != typeList {
			return nil
		}
		value, err := compact.Parse(b.Data)
		v := &list{key: k, blob: b, value: value}
		lists, l.lists[k] = append(lists, v), v
		return err
	}
	switch {
	case spaces == nil:
	case !l.bounded:
		l.q.ask(selectBlobs, add, l.thread, spaces, channels, versions)
	default:
		l.q.ask(someBlobs, func(r *row) error {
			if r.Bool(5) {
				l.cut[blobKey{r.Text(0), rows.ChannelVersion{Channel: r.Text(1), Version: r.Text(2)}}] = true
				return nil
			}
			return add(r)
		}, l.thread, spaces, channels, versions, newExempt, l.room)
	}
	if err := l.q.send(); err != nil || lists == nil {
		return nil, err
	}
	var chunks []compact.Run
	for _, v := range lists {
		chunks = append(chunks, v.value.Chunks...)
	}
	if _, err := l.fetch(chunks); err != nil {
		return nil, err
	}
	for _, v := range lists {
		if v.runs, err = l.runs(&v.value); err != nil {
			return nil, v.wrong(err)
		}
	}
	return lists, nil
}

// restore sets the items of a list whose parts are loaded.
func (l *loader) restore(v *list) error {
	items, err := v.value.Restore(v.runs, func(n uint32) []byte { return l.parts[n] })
	if err != nil {
		return v.wrong(err)
	}
	v.blob.Type, v.blob.Data, v.blob.Items = jsonplus.TypeMsgpack, nil, items
	delete(l.lists, v.key)
	return nil
}

func (v *list) wrong(err error) error {
	return fmt.Errorf("channel %s: version %s: %w", v.blob.Channel, v.blob.Version, relational.Lost(err))
}

// runs returns the parts of a list in order, those named by its chunks included. The chunks are
// loaded.
func (l *loader) runs(v *compact.Value) ([]compact.Run, error) {
	var runs []compact.Run
	for _, r := range v.Chunks {
		for n := r.First; n-r.First < r.Count; n++ {
			chunk, ok := l.parts[n]
			if !ok {
				return nil, fmt.Errorf("%w: chunk %d is missing", compact.ErrMissing, n)
			}
			more, err := compact.ParseChunk(chunk)
			if err != nil {
				return nil, fmt.Errorf("chunk %d: %w", n, err)
			}
			runs = append(runs, more...)
		}
	}
	return append(runs, v.Parts...), nil
}

// named adds all parts of lists to set, chunks included.
func (l *loader) named(values [][]byte, set *compact.Set) error {
	parsed := make([]compact.Value, len(values))
	var chunks []compact.Run
	for i, value := range values {
		v, err := compact.Parse(value)
		if err != nil {
			return err
		}
		parsed[i] = v
		chunks = append(chunks, v.Chunks...)
	}
	if _, err := l.fetch(chunks); err != nil {
		return err
	}
	for i := range parsed {
		runs, err := l.runs(&parsed[i])
		if err != nil {
			return err
		}
		set.Add(parsed[i].Chunks)
		set.Add(runs)
	}
	return nil
}

// fetchSize bounds the parts per query.
const fetchSize = 8192

// fetch loads parts that are not loaded yet.
func (l *loader) fetch(runs []compact.Run) (loaded int, err error) {
	var wanted []int64
	asked := map[uint32]bool{}
	for _, r := range runs {
		for n := r.First; n-r.First < r.Count; n++ {
			if _, ok := l.parts[n]; !ok && !asked[n] {
				asked[n] = true
				wanted = append(wanted, int64(n))
			}
		}
	}
	if wanted == nil {
		return 0, nil
	}
	if l.owner == 0 {
		owner, found, err := findOwner(l.q, l.thread)
		if err != nil {
			return 0, err
		}
		if !found {
			return 0, relational.Lost(fmt.Errorf("%w: the thread has no parts of lists", compact.ErrMissing))
		}
		l.owner = owner
	}
	for i := range wanted {
		wanted[i] = partKey(l.owner, uint32(wanted[i]))
	}
	for len(wanted) > 0 {
		n := min(len(wanted), fetchSize)
		l.q.ask(selectParts, func(r *row) error {
			data := r.Bytes(1)
			l.parts[uint32(r.Int(0)&(1<<partBits-1))] = data
			loaded += len(data)
			return nil
		}, wanted[:n:n])
		wanted = wanted[n:]
	}
	err = l.q.send()
	return loaded, err
}
