package backend

import (
	"log/slog"

	"understudy/auth"
	"understudy/internal/config"
)

// Tokens are those that auth.jwt accepts. It fetches nothing.
func Tokens(j *config.JWT, log *slog.Logger) (*auth.Tokens, error) {
	return auth.NewTokens(auth.TokenOptions{
		Issuer: j.Issuer, Audience: j.Audience, KeysURL: j.JWKSURL, Secret: j.Secret, Algorithms: j.Algorithms, Identity: j.Identity, Name: j.Name, Permissions: j.Permissions, Log: log,
	})
}
