// Package logonce keeps what is found again and again, such as problems of a folder that is read for each request, from being logged each time.
package logonce

import "sync"

// maxNoted bounds the texts that are remembered; beyond it those that were logged are forgotten.
const maxNoted = 1000

// Texts are the texts that were noted last, by what they are about. The zero value is ready; it is safe for concurrent use.
type Texts struct {
	mu    sync.Mutex
	texts map[string]string
}

// Changed notes a text about something, such as a path, and reports whether it is another than the one that was noted last.
func (t *Texts) Changed(about, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, known := t.texts[about]; known && last == text {
		return false
	}
	if t.texts == nil || len(t.texts) >= maxNoted {
		t.texts = map[string]string{}
	}
	t.texts[about] = text
	return true
}
