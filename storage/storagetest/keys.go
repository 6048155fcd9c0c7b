package storagetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/auth"
	"understudy/internal/fault"
)

var keyCases = map[string]func(*testing.T, Backend){
	"API keys": func(t *testing.T, b Backend) {
		t.Helper()
		first := &auth.Key{ID: "a", Name: "n", Identity: "i 😀", Scopes: []string{auth.Read, auth.Write}, Digest: "d", CreatedAt: at(1)}
		second := &auth.Key{ID: "b", Name: "n", Identity: "j", Scopes: []string{}, Digest: "e", CreatedAt: at(2), ExpiresAt: at(9)}
		for _, k := range []*auth.Key{second, first} {
			require.NoError(t, b.Keys.InsertKey(ctx, k))
		}
		require.Error(t, b.Keys.InsertKey(ctx, first), "an ID is of one key")
		missing := func(err error) { t.Helper(); require.True(t, fault.Is(err, fault.NotFound), "%v", err) }
		for _, ids := range [][]string{nil, {"none"}, {"none", "other"}} {
			none, err := b.Keys.KeysOf(ctx, ids)
			require.NoError(t, err)
			require.Empty(t, none)
		}
		missing(b.Keys.ExpireKey(ctx, "none", at(1)))
		missing(b.Keys.RevokeKey(ctx, "none", at(1)))
		require.NoError(t, b.Keys.UseKeys(ctx, map[string]time.Time{"none": at(1)}), "it may have gone meanwhile")

		require.NoError(t, b.Keys.ExpireKey(ctx, "a", at(8)))
		require.NoError(t, b.Keys.ExpireKey(ctx, "a", at(9)), "it ends at the earlier time")
		require.NoError(t, b.Keys.ExpireKey(ctx, "b", at(7)))
		require.NoError(t, b.Keys.RevokeKey(ctx, "b", at(5)))
		require.NoError(t, b.Keys.RevokeKey(ctx, "b", at(6)), "the first time counts")
		require.NoError(t, b.Keys.UseKeys(ctx, map[string]time.Time{"none": at(4), "b": at(4)}))
		require.NoError(t, b.Keys.UseKeys(ctx, map[string]time.Time{"b": at(3)}), "another server was later")
		first.ExpiresAt, second.ExpiresAt, second.RevokedAt, second.UsedAt = at(8), at(7), at(5), at(4)
		b = b.reopen(t)
		list, err := b.Keys.Keys(ctx)
		require.NoError(t, err)
		for i, want := range []*auth.Key{first, second} {
			got, err := b.Keys.KeysOf(ctx, []string{"none", want.ID, "' OR 1 = 1"})
			require.NoError(t, err)
			require.Len(t, got, 1)
			of, err := b.Keys.KeysOfIdentity(ctx, want.Identity)
			require.NoError(t, err)
			require.Len(t, of, 1)
			for _, k := range []*auth.Key{got[0], list[i], of[0]} {
				for _, at := range []*time.Time{&k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.UsedAt} {
					*at = at.UTC()
				}
				require.Equal(t, want, k)
			}
		}
		require.Len(t, list, 2)
	},
}
