package eventstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"understudy/internal/jsonplus"
)

// Unreadable values are shown by name in their place. There are two kinds:
//
//   - a message in a list: it is a message like any other, known by its bytes;
//   - the whole value of a checkpoint, as a pickle or an encrypted one: an entry at the end of the transcript stands for whatever that
//     held. The list stays that of the parent, with which the next value that can be read is compared. If all of it is still there the
//     entry goes again; if messages were condensed meanwhile it stays among them.

// UnreadablePrefix begins the ids of entries for a whole unreadable value.
const UnreadablePrefix = "unreadable-"

// unreadableMessage returns the placeholder of a message. Its type is one that every client knows.
func unreadableMessage(what, name string) []byte {
	text, err := json.Marshal(struct {
		Content string `json:"content"`
		Kwargs  struct {
			Unreadable string `json:"unreadable"`
		} `json:"additional_kwargs"`
		Metadata struct{} `json:"response_metadata"`
		Type     string   `json:"type"`
		Name     *string  `json:"name"`
		ID       *string  `json:"id"`
	}{
		Content: fmt.Sprintf("[%s cannot be read: %s]", what, name),
		Kwargs: struct {
			Unreadable string `json:"unreadable"`
		}{name},
		Type: "system",
	})
	if err != nil { // text alone
		panic(err)
	}
	return text
}

// parse reads the fields of a slot's message; false when it is not a message. An unreadable item counts as a message, shown
// by name.
func (s *step) parse(sl *slot) (ok bool) {
	if s.shown {
		sl.message, ok = ShownMessage(sl.raw)
		return ok
	}
	if sl.message, ok = jsonplus.ParseMessage(sl.raw); !ok {
		sl.unreadable = jsonplus.Unreadable(sl.raw)
		ok = sl.unreadable != ""
	}
	return ok
}

// show fills in the message of a slot as JSON, or the placeholder when it cannot be read.
func (s *step) show(sl *slot) {
	if s.shown {
		sl.text = sl.raw
		return
	}
	ok := false
	if sl.unreadable == "" {
		if sl.text, ok = messageJSON(sl.raw); !ok {
			sl.unreadable = "msgpack, corrupt"
		}
	}
	if ok {
		return
	}
	sl.text = unreadableMessage("This message", sl.unreadable)
	sl.message.Type = "unreadable"
	if sl.message.ID != "" {
		sl.text = withID(sl.text, sl.message.ID)
	}
}

// messages returns the items of the checkpoint's channel. ok is false when it is not a list; unreadable is the type of a value
// that cannot be read.
func (s *step) messages() (items [][]byte, unreadable string, ok bool, err error) {
	v := s.f.Messages
	if v == nil {
		v = &Value{}
		if v.Type, v.Data, err = s.tx.ChannelValue(s.f.Thread, s.f.channel(), s.f.Version); err != nil {
			return nil, "", false, err
		}
	}
	if v.Items != nil {
		s.shown = true
		return v.Items, "", true, nil
	}
	if v.Packed != nil {
		return v.Packed, "", true, nil
	}
	data := v.Data
	switch {
	case v.Type == "empty" || v.Type == jsonplus.TypeNull || jsonplus.IsNull(v.Type, v.Data):
		return nil, "", true, nil
	case v.Type == "" || v.Type == jsonplus.TypeBytes || v.Type == jsonplus.TypeBytearray:
		return nil, "", false, nil
	case v.Type == jsonplus.TypeJSON:
		if data, err = jsonplus.PackJSON(v.Data); err != nil {
			return nil, "json, corrupt", false, nil
		}
	case v.Type != jsonplus.TypeMsgpack:
		return nil, v.Type, false, nil
	}
	if whole, ok := jsonplus.DeltaSnapshot(data); ok {
		data = whole
	}
	items, err = jsonplus.SplitArray(data)
	switch {
	case err == nil:
		return items, "", true, nil
	case errors.Is(err, jsonplus.ErrNotArray):
		return nil, jsonplus.Unreadable(data), false, nil
	default:
		return nil, "msgpack, corrupt", false, nil
	}
}

// loses notes that the checkpoint's value cannot be read.
func (s *step) loses(name string) {
	s.Prefix, s.Unread = len(s.List), true
	if n := len(s.old.shown); n > 0 && s.old.shown[n-1].IsLost() && s.old.shown[n-1].digest == digestOf([]byte(name)) {
		return // as the one before
	}
	s.unreadable = name
}

// lostItem returns the entry for the checkpoint's unreadable value, and its content.
func (s *step) lostItem() (message []byte, it *item) {
	it = &item{
		id:     UnreadablePrefix + uuid.NewSHA1(uuid.NameSpaceOID, []byte(s.f.Checkpoint)).String(),
		digest: digestOf([]byte(s.unreadable)),
	}
	return withID(unreadableMessage("What was said here", s.unreadable), it.id), it
}
