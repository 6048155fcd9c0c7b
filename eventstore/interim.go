package eventstore

import "understudy/checkpointer"

// RecordPut is the seam that package thread's saver calls for each new root checkpoint, in its transaction, after PutCheckpoint.
// Interim: whoever writes the recording replaces this file and keeps the call (or changes thread/saver.go and says so).
func RecordPut(tx Tx, p *checkpointer.Put) error { return nil }
