package eventstore

import (
	"strconv"
	"testing"

	"github.com/google/uuid"
)

// AnonymousID spells out the rule for the n-th of equal messages.
func AnonymousID(t *testing.T, message []byte, n int) string {
	t.Helper()
	digest, err := anonymousDigest(message)
	if err != nil {
		t.Fatal(err)
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(digest+":"+strconv.Itoa(n))).String()
}

// SetBatch makes batches small.
func SetBatch(b *Backfiller, checkpoints, bytes int) { b.checkpoints, b.size = checkpoints, bytes }
