package memory

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"understudy/internal/fault"
	"understudy/store"
)

// Items keeps memories in the store: each is the item memory.json in a namespace of its user and agent, (USER, memory) or (USER, memory, AGENT). Who may use the store
// reaches their own there too.
type Items struct {
	Store *store.Service
	User  func(id string) string // the label of a user
}

const (
	label   = "memory"
	itemKey = FileName
)

// unindexed keeps memories out of searches by meaning; they have no time to live.
var unindexed = json.RawMessage("false")

var no = false // reading does not write

func (s *Items) namespace(subject string) []string {
	user, agent := Of(subject)
	if agent == "" {
		return []string{s.User(user), label}
	}
	return []string{s.User(user), label, agent}
}

// item is an item as memories and their queue have it.
func item(namespace []string, key string, text []byte) store.Item {
	return store.Item{Namespace: namespace, Key: key, Value: text, Index: unindexed, TTL: -1}
}

// load reads the document of an item; nil: there is none.
func load(ctx context.Context, items *store.Service, namespace []string, key string) (*Document, error) {
	i, err := items.Get(ctx, namespace, key, &no)
	if err != nil || i == nil {
		return nil, err
	}
	return &Document{i.Value, i}, nil
}

// Load implements Documents.
func (s *Items) Load(ctx context.Context, subject string) (*Document, error) {
	return load(ctx, s.Store, s.namespace(subject), itemKey)
}

// Save implements Documents.
func (s *Items) Save(ctx context.Context, subject string, was *Document, text []byte) (bool, error) {
	var before *store.Item
	if was != nil {
		before = was.item
	}
	return s.Store.Swap(ctx, item(s.namespace(subject), itemKey, text), before)
}

// Forget deletes the memory of a subject; of a user those of all agents, with what else is below the memory of the user.
func (s *Items) Forget(ctx context.Context, subject string) error {
	if _, agent := Of(subject); agent != "" { // graphs may have items below its name
		return errors.Join(s.delete(ctx, s.namespace(subject)), s.delete(ctx, s.marks(subject)))
	}
	if err := deleteBelow(ctx, s.Store, s.namespace(subject)...); err != nil {
		return err
	}
	return deleteBelow(ctx, s.Store, s.marks(subject)...)
}

// delete deletes the item of a namespace, if it is there.
func (s *Items) delete(ctx context.Context, namespace []string) error {
	err := s.Store.Delete(ctx, namespace, itemKey)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// importedLabel begins the namespaces in which it is noted what was imported. No user has one that begins as it.
const importedLabel = "understudy:memory-imported"

func (s *Items) marks(subject string) []string {
	return append([]string{importedLabel}, s.namespace(subject)...)
}

// imported reports whether a memory was imported: users can delete its item, and the file is still there.
func (s *Items) imported(ctx context.Context, subject string) (bool, error) {
	i, err := s.Store.Get(ctx, s.marks(subject), itemKey, &no)
	return i != nil, err
}

func (s *Items) markImported(ctx context.Context, subject string) error {
	return s.Store.Put(ctx, item(s.marks(subject), itemKey, []byte("{}")))
}

const deletedAtOnce = 100

// deleteBelow deletes all items of a namespace.
func deleteBelow(ctx context.Context, items *store.Service, namespace ...string) error {
	for {
		page, err := items.Search(ctx, store.Search{Prefix: namespace, Limit: deletedAtOnce, Bytes: 1}, &no)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, i := range page {
			if err := items.Delete(ctx, i.Namespace, i.Key); err != nil {
				return err
			}
		}
	}
}

// Moved are documents that were elsewhere before: each is moved when it is needed first, once.
type Moved struct {
	*Items
	From Documents
	Log  *slog.Logger
}

// Load implements Documents.
func (d *Moved) Load(ctx context.Context, subject string) (*Document, error) {
	here, err := d.Items.Load(ctx, subject)
	if err != nil || here != nil {
		return here, err
	}
	_, err = d.Move(ctx, subject)
	if err != nil {
		return nil, err
	}
	return d.Items.Load(ctx, subject)
}

// Move moves the document of a subject, unless there is one here, or it was moved before. It reports whether it did.
func (d *Moved) Move(ctx context.Context, subject string) (moved bool, err error) {
	old, err := d.From.Load(ctx, subject)
	if err != nil || old == nil {
		return false, err
	}
	if was, err := d.imported(ctx, subject); err != nil || was {
		return false, err
	}
	m, err := parse(old.Text)
	if err != nil {
		return false, err
	}
	text, err := m.document()
	if err != nil {
		return false, err
	}
	if moved, err = d.Save(ctx, subject, nil, text); moved {
		user, agent := Of(subject)
		d.Log.InfoContext(ctx, "the memory of a user was imported into the store; its file stays as it is, and counts no more", "user", user, "agent", agent, "facts", len(m.Facts))
	}
	if err != nil {
		return moved, err
	}
	return moved, d.markImported(ctx, subject)
}
