# nmtdeep for CPUs and NVIDIA GPUs: docker build -t nmtdeep .   See docs/installing.md.
FROM python:3.13-slim-trixie
WORKDIR /opt/nmtdeep
COPY requirements requirements
# The locks name every wheel and its hash; torch's from PyPI brings CUDA's libraries.
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt \
 && pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation -r requirements/users.txt \
 && pip install --no-cache-dir --require-hashes --no-deps -r requirements/torch.txt
COPY . .
RUN pip install --no-cache-dir --no-deps . \
 && useradd --create-home nmtdeep && mkdir /work && chown nmtdeep /work
USER nmtdeep
WORKDIR /work
ENTRYPOINT ["nmtdeep"]
CMD ["--help"]
