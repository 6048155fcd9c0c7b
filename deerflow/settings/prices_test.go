package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func priced(name, model string, pricing any) Model {
	return Model{Name: name, Model: model, Pricing: pricing}
}

// Models are found by either name; mistakes and several currencies mean that costs are not shown.
func TestPrices(t *testing.T) {
	t.Parallel()
	good := map[string]any{"currency": " cny ", "input_per_million": 8, "output_per_million": "32"}
	p := PricesOf([]Model{priced("a", "vendor/A", good), priced("b", "b", nil), priced("c", "c", "free"), priced("d", "d", map[string]any{"input_per_million": "much"}), priced("e", "e", map[string]any{})})
	require.Equal(t, "CNY", p.Currency)
	for _, name := range []string{"a", "A", "VENDOR/a"} {
		cost, ok := p.Cost(name, 500_000, 250_000)
		require.True(t, ok)
		require.InDelta(t, 12, cost, 1e-9)
	}
	for _, name := range []string{"b", "c", "d", "e", ""} {
		_, ok := p.Cost(name, 1, 1)
		require.False(t, ok, name)
	}
	_, ok := p.Cost("a", 0, 0)
	require.False(t, ok)
	p = PricesOf([]Model{priced("a", "a", good), priced("b", "b", map[string]any{"input_per_million": 1})})
	require.Empty(t, p.Currency)
	_, ok = p.Cost("a", 1, 1)
	require.False(t, ok)
}
