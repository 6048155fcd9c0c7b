# understudy in a container.
#
#   docker build -t understudy .                           the server alone: graphs in Go, declared agents, remote graphs, the proxy
#   docker build -t understudy:python --target python .    with Python and langgraph, for graphs in Python
#
# docs/operations.md says how to run it, and what its health check asks of a server, a worker and a proxy.
ARG GO_VERSION=1.26
ARG PYTHON_VERSION=3.13

FROM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.release=${VERSION}" -o /out/usr/local/bin/understudy ./cmd/understudy \
    && install -d -m 0755 /out/app && install -d -m 0700 -o 10001 -g 10001 /out/data && install -d -m 1777 /out/tmp \
    && install -D -m 0644 /usr/local/go/lib/time/zoneinfo.zip /out/usr/share/zoneinfo.zip \
    && install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt \
    && printf 'understudy:x:10001:10001::/app:/sbin/nologin\n' > /out/etc/passwd

# Python, and what graphs need of LangGraph. Their own packages are added by an image on this one, or by PACKAGES, in pip's words.
FROM python:${PYTHON_VERSION}-slim-bookworm AS python
ARG LANGGRAPH_VERSION=1.2.22
ARG PACKAGES=
RUN pip install --no-cache-dir "langgraph==${LANGGRAPH_VERSION}" ${PACKAGES} && useradd --uid 10001 --no-create-home --home-dir /app understudy
COPY --from=build /out/usr/local/bin/understudy /usr/local/bin/understudy
COPY --from=build /out/usr/share/zoneinfo.zip /usr/share/zoneinfo.zip
COPY --from=build --chown=10001:10001 /out/data /data
ENV UNDERSTUDY_HOST=0.0.0.0 UNDERSTUDY_HEALTH_PORT=2026 UNDERSTUDY_DATA=/data UNDERSTUDY_PYTHON=/usr/local/bin/python3 ZONEINFO=/usr/share/zoneinfo.zip PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001:10001
VOLUME /data
EXPOSE 2024 2026
# A server on UNDERSTUDY_PORT or a worker on UNDERSTUDY_HEALTH_PORT; a proxy where UNDERSTUDY_HEALTH_URL says.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["understudy", "health"]
ENTRYPOINT ["understudy"]
CMD ["serve"]

# The binary, certificates and time zones: nothing else.
FROM scratch AS server
COPY --from=build /out/ /
ENV PATH=/usr/local/bin UNDERSTUDY_HOST=0.0.0.0 UNDERSTUDY_HEALTH_PORT=2026 UNDERSTUDY_DATA=/data ZONEINFO=/usr/share/zoneinfo.zip
WORKDIR /app
USER 10001:10001
VOLUME /data
EXPOSE 2024 2026
# A server on UNDERSTUDY_PORT or a worker on UNDERSTUDY_HEALTH_PORT; a proxy where UNDERSTUDY_HEALTH_URL says.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["understudy", "health"]
ENTRYPOINT ["understudy"]
CMD ["serve"]
