# The service in a container: an ordinary user, one volume, a health check.
#
#   docker build -t tagstream .
#   docker run --rm -v tagstream:/data tagstream token add /data anna --role admin
#   docker run -p 8080:8080 -v tagstream:/data tagstream
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/tagstream && /opt/tagstream/bin/pip install --no-cache-dir ".[serve]"

FROM python:3.13-slim
RUN useradd --uid 10001 --create-home tagstream && mkdir /data && chown tagstream /data
COPY --from=build /opt/tagstream /opt/tagstream
# Compiled code is kept beside the data: a new container need not compile it again. Code that was
# compiled here is copied to a new volume, and used there if the processor is the same.
ENV PATH=/opt/tagstream/bin:$PATH NUMBA_CACHE_DIR=/data/.numba OPENBLAS_NUM_THREADS=1 PYTHONUNBUFFERED=1
USER 10001
RUN tagstream warm-up
VOLUME /data
EXPOSE 8080
# On another processor the first start compiles, which can take a minute.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5m \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health/ready', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tagstream"]
CMD ["serve", "/data", "--host", "0.0.0.0", "--port", "8080"]
