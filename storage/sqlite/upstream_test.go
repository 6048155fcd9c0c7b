package sqlite

import (
	"testing"

	"understudy/proxy/record"
	"understudy/storage/storagetest"
)

func TestUpstreamSuite(t *testing.T) {
	t.Parallel()
	storagetest.RunUpstream(t, func(t *testing.T) record.Store { return setup(t).Upstream() })
}
