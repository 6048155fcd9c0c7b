package memory_test

import (
	"os"
	"testing"

	"understudy/internal/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }
