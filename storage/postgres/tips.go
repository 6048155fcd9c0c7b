package postgres

import "understudy/id"

// ChannelText is run.Tx.ChannelText. Who ends a run has read the newest checkpoint.
func (tx *Tx) ChannelText(t id.Thread, channel string) (string, error) {
	head, known := tx.tips[t]
	switch {
	case !known:
		return tx.Tx.ChannelText(t, channel)
	case head == nil:
		return "", nil
	}
	return tx.TextIn(head.Data, t, channel)
}
